# SPDX-License-Identifier: Apache-2.0
# halay-prove: proves all planners, and tests the prover with an oracle of its own.
add_executable(halay-prove halay-prove/main.c halay-prove/prove.c halay-prove/campaign.c halay-prove/far.c
  halay-prove/mutant.c halay-prove/selftest.c halay-prove/handmade.c halay-prove/oracle.c
  halay-prove/search.c halay-prove/adversary.c halay-prove/machine.c halay-prove/program.c
  halay-prove/terms.c halay-prove/shapes.c)
target_link_libraries(halay-prove PRIVATE halay)
install(TARGETS halay-prove RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The long runs, by hand: halay-prove --all, halay-prove --mutants 500
if(HALAY_TESTS)
  add_test(NAME proofs/oracle COMMAND halay-prove --selftest)
  add_test(NAME proofs/planners COMMAND halay-prove --max 64 --far 3 --seed random)
  if(HALAY_SANITIZE)
    set(random_ranks 3) # ten times as slow
  else()
    set(random_ranks 40)
  endif()
  add_test(NAME proofs/random COMMAND halay-prove --max 1 --random ${random_ranks} --seed random)
  add_test(NAME proofs/nodes COMMAND halay-prove --nodes cyclic:16x2+8x3+1)
  add_test(NAME proofs/mutants COMMAND halay-prove --mutants 60)
  set_tests_properties(proofs/oracle proofs/planners proofs/random proofs/nodes proofs/mutants
    PROPERTIES LABELS proofs TIMEOUT 600)
endif()
