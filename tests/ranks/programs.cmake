# SPDX-License-Identifier: Apache-2.0
# A file of its own: scripts/compare-builds puts it into older trees, too.
add_executable(test_ranks_programs test_programs.c program_calls.c reference.c)
target_include_directories(test_ranks_programs PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(test_ranks_programs PRIVATE ranks_harness m)
