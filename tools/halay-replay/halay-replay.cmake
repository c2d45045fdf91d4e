# SPDX-License-Identifier: Apache-2.0
# halay-replay: what the flight records of a job say, and their plans run on from there.
add_executable(halay-replay halay-replay/main.c halay-replay/run.c halay-replay/picture.c common/flight.c
  common/flight_find.c common/flight_text.c common/flight_blame.c common/machine.c common/printed.c common/program.c
  common/terms.c)
target_link_libraries(halay-replay PRIVATE halay halay_proc)
install(TARGETS halay-replay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
