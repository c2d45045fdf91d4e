# SPDX-License-Identifier: Apache-2.0
# Copies of src/agree/held.c, coordinator.c, failing.c and course.c, each with one place damaged: the exploration has to refuse all of
# them. They are added to DAMAGED (agree_damages.cmake). A text that is not there exactly once is an error, so that the
# list keeps up with the source. One guard is not in it, since no run differs without it: who asks after the conclusion is
# told, for whoever was told of it has passed it on.
set(verdict_text "")
foreach(part held coordinator failing course)
  set(verdict_source ${PROJECT_SOURCE_DIR}/src/agree/${part}.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${verdict_source})
  file(READ ${verdict_source} part_text)
  string(APPEND verdict_text "${part_text}")
endforeach()
string(REGEX MATCHALL "\n[a-z][a-z_ ]* (hly_[a-z_]+)\\(" verdict_functions "${verdict_text}")
list(TRANSFORM verdict_functions REPLACE ".* (hly_[a-z_]+).*" "\\1")
set(verdict_number 0)
set(verdicts_declared "")
set(verdicts_listed "")
set(DAMAGED_VERDICTS "")

macro(damage_verdict what from to)
  string(FIND "${verdict_text}" "${from}" first)
  string(FIND "${verdict_text}" "${from}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "src/agree/{held,coordinator,failing,course}.c have not exactly once: ${from}")
  endif()
  string(REPLACE "${from}" "${to}" damaged_text "${verdict_text}")
  set(damaged_names "")
  foreach(name ${verdict_functions})
    string(APPEND damaged_names "#define ${name} d${verdict_number}_${name}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/damaged/verdict${verdict_number}.c @ONLY CONTENT
    "${damaged_names}${damaged_text}
#include \"verdict_world.h\"
extern const hly_failing_ops_t hly_damaged_verdict_${verdict_number};
const hly_failing_ops_t hly_damaged_verdict_${verdict_number} = {\"${what}\", HLY_FAILING_OPS};
")
  list(APPEND DAMAGED_VERDICTS ${CMAKE_CURRENT_BINARY_DIR}/damaged/verdict${verdict_number}.c)
  string(APPEND verdicts_declared "extern const hly_failing_ops_t hly_damaged_verdict_${verdict_number};\n")
  string(APPEND verdicts_listed "&hly_damaged_verdict_${verdict_number}, ")
  math(EXPR verdict_number "${verdict_number} + 1")
endmacro()

damage_verdict("the better verdict is not taken" "!hly_verdict_better(t, &f->verdict))" "true)")
damage_verdict("no vote is sent" "    if (j->answers || (due &&" "    if (j->answers || (false &&")
damage_verdict("a vote can change" "stays = f->voting.voted &&" "stays = false &&")
damage_verdict("that all are in step is not told" "v->made && !f->final ? HLY_HEARD_IN_STEP" "false ? HLY_HEARD_IN_STEP")
damage_verdict("one that is absent is in step" "if (r != v->rank && !voted(v, f, r))" "if (false)")
damage_verdict("who leaves tells only those that it has a link to" "(v->nranks <= HLY_TOLD_MOST || is & HLY_RANK_CALLED))" "is & HLY_RANK_CALLED)")
damage_verdict("who has completed the call and left is called lost" "return given == HLY_GIVEN_PART;" "return true;")
damage_verdict("who has completed the call and left is called lost at the deadline" "given != HLY_GIVEN_ALL &&" "")
damage_verdict("who is absent is told to nobody" "v->nranks <= HLY_TOLD_MOST && r < v->nranks" "false")
damage_verdict("no clock after a death" "    if (!slow || (f->slow && !known))" "    if (true)")
damage_verdict("no look at the clock" "    f->looks += v->now_ns >= f->deadline_ns;\n    return name;" "    return name;")

damage_verdict("what has come is not read first" "return !now->late && now->unread ?" "return false ?")
damage_verdict("the end waits for no vote" "if (!now->late && !is_decided(v, f, over))" "if (false)")
damage_verdict("late ranks wait on" "if (!now->late && !is_decided(v, f, over))" "if (!is_decided(v, f, over))")
damage_verdict("out of step, and not said" "        verdict->of = (uint64_t)v->sequence + 1;\n    /* If" "        verdict->of = 0;\n    /* If")
damage_verdict("what is agreed on is not taken" "    f->verdict = b->by;" "    ;")
damage_verdict("the clock ends it for each rank" "round >= ROUNDS ||" "true ||")
damage_verdict("what is proposed is not taken" "mine : theirs->stamp <= f->verdict.stamp" "mine : true")
damage_verdict("no verdict is proposed" "taken && (whole || has_proposed(f))" "true")
damage_verdict("who may live and has not voted does not count" "taken && (whole || has_proposed(f))" "taken")
damage_verdict("the coordinator waits for no vote" "        all = !is_awaited(v, f, r);" "        all = true;")
damage_verdict("who was stopped and speaks is not asked" "           (spoke(v, f, rank) || !hly_verdict_stops(&f->verdict, rank));" "           !hly_verdict_stops(&f->verdict, rank);")

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/damaged/verdicts.c @ONLY CONTENT
  "#include \"verdict_explore.h\"
${verdicts_declared}const hly_failing_ops_t *const hly_damaged_verdicts[] = {${verdicts_listed}NULL};
")
list(APPEND DAMAGED_VERDICTS ${CMAKE_CURRENT_BINARY_DIR}/damaged/verdicts.c)
set_source_files_properties(${DAMAGED_VERDICTS} PROPERTIES COMPILE_OPTIONS "-w;-O1;-g0")
