# SPDX-License-Identifier: Apache-2.0
# halay-prove: proves all planners, and tests the prover with an oracle of its own.
foreach(part damages agree_damages meet_damages verdict_damages)
  include(${CMAKE_CURRENT_LIST_DIR}/${part}.cmake)
endforeach()
# Things are unused after a damage; a third of the time of a whole build with -O2; without -O zig adds UBSan.
set_source_files_properties(${DAMAGED} PROPERTIES COMPILE_OPTIONS "-w;-O1;-g0")
add_executable(halay-prove halay-prove/agree_model.c halay-prove/meet_model.c halay-prove/meet_rows.c
  halay-prove/verdict_model.c halay-prove/verdict_rows.c halay-prove/verdict_short.c halay-prove/verdict_alike.c ${DAMAGED} halay-prove/explore.c halay-prove/seen.c
  halay-prove/main.c halay-prove/prove.c halay-prove/campaign.c halay-prove/far.c
  halay-prove/mutant.c halay-prove/selftest.c halay-prove/handmade.c halay-prove/oracle.c
  halay-prove/search.c halay-prove/adversary.c halay-prove/shapes.c common/machine.c
  common/printed.c common/program.c common/terms.c)
target_include_directories(halay-prove PRIVATE ../src halay-prove)
target_link_libraries(halay-prove PRIVATE halay halay_agree halay_world halay_waits)
install(TARGETS halay-prove RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The long runs, by hand: halay-prove --all, halay-prove --mutants 500
if(HALAY_TESTS)
  add_test(NAME proofs/oracle COMMAND halay-prove --selftest)
  add_test(NAME proofs/planners COMMAND halay-prove --max 64 --far 3 --seed random)
  if(HALAY_SANITIZE)
    set(random_ranks 2) # ten times as slow
  else()
    set(random_ranks 4)
  endif()
  foreach(part 1 2 3 4 5 6) # a process each: 24 numbers of ranks together, a third of them in a sample
    add_test(NAME proofs/random-${part}
      COMMAND halay-prove --max 1 --random ${random_ranks} --seed random)
    set_tests_properties(proofs/random-${part} PROPERTIES LABELS "proofs;sampled" TIMEOUT 600)
  endforeach()
  add_test(NAME proofs/nodes COMMAND halay-prove --nodes cyclic:16x2+8x3+1)
  add_test(NAME proofs/mutants COMMAND halay-prove --mutants 40)
  add_test(NAME proofs/agreements COMMAND halay-prove --agreements --random 300 --seed random)
  add_test(NAME proofs/agreements-mutants COMMAND halay-prove --agreements --mutants 20)
  add_test(NAME proofs/worlds COMMAND halay-prove --worlds)
  add_test(NAME proofs/worlds-mutants COMMAND halay-prove --worlds --mutants 30)
  set_tests_properties(proofs/agreements proofs/agreements-mutants proofs/worlds proofs/worlds-mutants PROPERTIES LABELS proofs TIMEOUT 600)
  set_tests_properties(proofs/oracle proofs/planners proofs/nodes proofs/mutants
    PROPERTIES LABELS proofs TIMEOUT 600)
  find_program(HALAY_PYTHON python3)
  if(HALAY_PYTHON) # no planner without its proofs
    add_test(NAME proofs/documented COMMAND ${HALAY_PYTHON} -B ${PROJECT_SOURCE_DIR}/scripts/check-proofs
      --selftest $<TARGET_FILE:halay-prove>)
    set_tests_properties(proofs/documented PROPERTIES LABELS proofs)
  endif()
endif()
