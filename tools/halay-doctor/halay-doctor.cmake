# SPDX-License-Identifier: Apache-2.0
# halay-doctor: what is wrong with this machine, and between these machines.
add_executable(halay-doctor halay-doctor/main.c halay-doctor/findings.c halay-doctor/root.c
  halay-doctor/host.c halay-doctor/rdma.c halay-doctor/rails.c halay-doctor/limits.c halay-doctor/cgroup.c
  halay-doctor/calls.c halay-doctor/software.c halay-doctor/gpu.c halay-doctor/pair.c
  halay-doctor/job.c halay-doctor/conclude.c halay-doctor/print.c halay-doctor/json.c
  halay-doctor/picture.c common/json.c common/library.c
  common/nccl.c common/printed.c common/switch.c)
target_link_libraries(halay-doctor PRIVATE halay halay_proc m ${CMAKE_DL_LIBS})
install(TARGETS halay-doctor RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
configure_file(halay-doctor/halay-doctor-picture ${CMAKE_BINARY_DIR}/lib/halay/halay-doctor-picture
  COPYONLY)
install(PROGRAMS halay-doctor/halay-doctor-picture DESTINATION ${CMAKE_INSTALL_LIBDIR}/halay)

if(HALAY_TESTS AND TARGET halay_boot_pmix)
  add_executable(halay-doctor-deny halay-doctor/deny.c)
  add_test(NAME job/halay-doctor
    COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/halay-doctor/selftest.sh)
  set_tests_properties(job/halay-doctor PROPERTIES LABELS job TIMEOUT 240 ENVIRONMENT
    "DOUBLE=${CMAKE_BINARY_DIR}/double;HALAYRUN=$<TARGET_FILE:halayrun>;DOCTOR=$<TARGET_FILE:halay-doctor>;DENY=$<TARGET_FILE:halay-doctor-deny>;LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/job/lsan.supp:print_suppressions=0;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/job/tsan.supp:print_suppressions=0:atexit_sleep_ms=0")
endif()
