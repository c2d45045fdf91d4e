# SPDX-License-Identifier: Apache-2.0
# halay-info: what this installation is and has found; prints and proves single plans.
add_executable(halay-info halay-info/main.c halay-info/plugins.c halay-info/settings.c
  halay-info/plan.c halay-info/explain.c halay-info/ps.c common/flight.c common/flight_find.c
  common/flight_text.c common/flight_blame.c common/size.c common/library.c common/nccl.c common/printed.c
  common/switch.c)
target_link_libraries(halay-info PRIVATE halay halay_proc ${CMAKE_DL_LIBS})
install(TARGETS halay-info RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(HALAY_TESTS AND TARGET halay_boot_pmix)
  add_test(NAME job/halay-info
    COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/halay-info/selftest.sh)
  set_tests_properties(job/halay-info PROPERTIES LABELS job TIMEOUT 120 ENVIRONMENT
    "DOUBLE=${CMAKE_BINARY_DIR}/double;INFO=$<TARGET_FILE:halay-info>;PLUGINS=${CMAKE_BINARY_DIR}/lib/halay")
endif()
