# SPDX-License-Identifier: Apache-2.0
# halay-bench: an osu-style table of one collective.
set(halay_bench_sources halay-bench/main.c halay-bench/options.c halay-bench/data.c
  halay-bench/measure.c halay-bench/calibrate.c halay-bench/rows.c halay-bench/keep.c
  common/library.c common/size.c)
add_executable(halay-bench ${halay_bench_sources})
target_link_libraries(halay-bench PRIVATE halay halay_proc m ${CMAKE_DL_LIBS})
install(TARGETS halay-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(HALAY_TESTS AND TARGET halay_boot_pmix)
  add_executable(halay-bench-spoilt ${halay_bench_sources} halay-bench/spoil.c)
  target_link_libraries(halay-bench-spoilt PRIVATE halay halay_proc m ${CMAKE_DL_LIBS})
  foreach(collective allreduce broadcast allgather reduce_scatter reduce gather scatter alltoall
          scan exscan)
    target_compile_definitions(halay-bench-spoilt PRIVATE
      halay_${collective}=hly_spoilt_${collective})
  endforeach()
  add_test(NAME job/halay-bench
    COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/halay-bench/selftest.sh)
  set_tests_properties(job/halay-bench PROPERTIES LABELS job TIMEOUT 240 ENVIRONMENT
    "HALAYRUN=$<TARGET_FILE:halayrun>;BENCH=$<TARGET_FILE:halay-bench>;SPOILT=$<TARGET_FILE:halay-bench-spoilt>;LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/job/lsan.supp:print_suppressions=0;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/job/tsan.supp:print_suppressions=0:atexit_sleep_ms=0")
endif()
