# SPDX-License-Identifier: Apache-2.0
# halay-bench: an osu-style table of one collective.
add_executable(halay-bench halay-bench/main.c halay-bench/options.c halay-bench/data.c
  halay-bench/measure.c)
target_link_libraries(halay-bench PRIVATE halay)
install(TARGETS halay-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
