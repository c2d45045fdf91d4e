# SPDX-License-Identifier: Apache-2.0
# Copies of boot/common/world.c, each with one place damaged: the exploration has to refuse all of them.
# MEET_DAMAGED: the sources. The first of them, the third and the fourth are what launchers did before the exploration. A text that is not there
# exactly once is an error, so that the list keeps up with the source.
set(meet_source ${PROJECT_SOURCE_DIR}/boot/common/world.c)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${meet_source})
file(READ ${meet_source} meet_text)
string(REPLACE "#include \"world.h\"" "#include \"meet_model.h\"" meet_text "${meet_text}")
set(MEET_DAMAGED "")
set(meet_declared "")
set(meet_listed "")
set(meet_functions init start end hello differ left seen failed next refused joined due_ns condemned)
set(meet_others bring break is_static is_newcomer is_awaited is_absent asking waiting newcomers untold)

macro(meet_damage what from to)
  list(LENGTH MEET_DAMAGED number)
  string(FIND "${meet_text}" "${from}" first)
  string(FIND "${meet_text}" "${from}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "boot/common/world.c has not exactly once: ${from}")
  endif()
  string(REPLACE "${from}" "${to}" damaged_text "${meet_text}")
  set(damaged_names "")
  set(damaged_ops "")
  foreach(name ${meet_functions} ${meet_others})
    string(APPEND damaged_names "#define hly_worlds_${name} hly_worlds_${number}_${name}\n")
  endforeach()
  foreach(name ${meet_functions})
    string(APPEND damaged_ops ", hly_worlds_${name}")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/damaged/meet${number}.c @ONLY CONTENT
    "${damaged_names}${damaged_text}
extern const hly_worlds_ops_t hly_worlds_damaged_${number};
const hly_worlds_ops_t hly_worlds_damaged_${number} = {\"${what}\"${damaged_ops}};
")
  list(APPEND MEET_DAMAGED ${CMAKE_CURRENT_BINARY_DIR}/damaged/meet${number}.c)
  string(APPEND meet_declared "extern const hly_worlds_ops_t hly_worlds_damaged_${number};\n")
  string(APPEND meet_listed "&hly_worlds_damaged_${number}, ")
endmacro()

meet_damage("who comes second is refused, a member too" "w->place[b].member && !w->place[a].member ? a : b" "b")
meet_damage("after a good end as many are needed as before" "w->done ? 1 : w->least" "w->least")
meet_damage("after a good end all wait for the late" "enough = are_enough(w);" "enough = hly_worlds_asking(w) >= w->least;")
meet_damage("members first, also where a rank is its place" "by_place = hly_worlds_is_static(w)" "by_place = false")
meet_damage("a twin is taken" "if (place->state == HLY_PLACE_ASKING && !alike)" "if (false)")
meet_damage("others wait for one that leaves" "place->member && !place->leaves &&
           !is_lost" "place->member &&
           !is_lost")
meet_damage("others wait for one that is called lost" "           !is_lost(w, place->rank);" "           true;")
meet_damage("another process in a member's place is a member" "!place->leaves && same;" "!place->leaves;")
meet_damage("who has left is a member" "place->member && !place->leaves && same" "place->member && same")
meet_damage("who was late once is late" "place->leaves = place->lost = " "place->leaves = ")
meet_damage("worlds are not numbered" "w->epoch++;" "w->epoch = 1;")
meet_damage("a refused member is forgotten"
  "if (asks(w, p))
            send_back(w, &w->place[p], true);"
  "if (asks(w, p)) {
            w->place[p].was_refused = true;
            move(w, &w->place[p], HLY_PLACE_STARTED);
        }")
meet_damage("a member that has hung up is forgotten" "send_back(w, place, place->was_refused || w->once);"
  "place->was_refused |= w->once, move(w, place, HLY_PLACE_STARTED);")
meet_damage("who has hung up still asks" "    if (place->state != HLY_PLACE_ASKING)
        return;" "    return;")
meet_damage("no deadline" "    const bool over = waits && now >= w->decide_ns;
    if (look" "    const bool over = false;
    if (look")
meet_damage("no deadline for newcomers" "w->expire_ns && now >= w->expire_ns &&" "false &&")
meet_damage("newcomers join a job that ends" "w->done && refuse_newcomer" "false && refuse_newcomer")
meet_damage("an end is not told to those that wait" "if (hly_worlds_is_static(w) && w->first_ended >= 0)" "if (false)")
meet_damage("one end of two is forgotten" "i < w->nplaces && w->first_ended < 0" "i < 0 && w->first_ended < 0")
meet_damage("a broken meeting is not told" "    if (w->broken)
        return act" "    if (false)
        return act")
meet_damage("a failure is told for ever" "    w->failed = -1;" "    ;")
meet_damage("a failure is not told" "    if (w->failed >= 0)" "    if (false)")
meet_damage("who is left out lives on" "const bool left_out = place->state" "const bool left_out = false && place->state")
meet_damage("who is called lost is reported again and again" "        place->reported = true;" "        ;")
meet_damage("too few are a world" "return n >= (" "return n >= 1 || n >= (")
meet_damage("nobody is waited for" "!are_enough(w) || !is_complete(w))
        return false;" "!are_enough(w))
        return false;")
meet_damage("the first world does not wait" "|| !w->epoch;
    return place" ";
    return place")
meet_damage("the answer comes at the end of the time" "now + left - spare" "now + left")
meet_damage("members by place" "w->order[w->place[p].rank] = p;" "w->order[p] = p;")
meet_damage("who was a member stays one" "        place->member = false;" "        ;")
meet_damage("a newcomer's time is the members'" "= newcomer ? &w->expire_ns" "= false ? &w->expire_ns")
meet_damage("the time of one that asks no more counts" "w->stale |= place->state == HLY_PLACE_ASKING;" ";")
meet_damage("who asks no more is counted" "- (place->state == HLY_PLACE_ASKING);" ";")
meet_damage("who is stopped is useless at once" "unfit && now - place->unfit_ns >= w->timeout_ns" "unfit")
meet_damage("who is late is killed" "if (useless && !enough)" "if (over || (useless && !enough))")
meet_damage("nobody goes on without the late" "if (hly_worlds_is_awaited(w, p) && (useless || (over && enough)))"
  "if (hly_worlds_is_awaited(w, p) && useless)")
meet_damage("nobody goes on without the stopped" "(useless || (over && enough))" "(over && enough)")
meet_damage("newcomers wait for the stopped" "const bool wait = w->decide_ns || are_stopped(w)"
  "const bool wait = w->decide_ns")
meet_damage("a meeting that was held is held again" "(w->epoch || w->closed || late)" "(w->closed || late)")
meet_damage("a meeting that has failed goes on" "w->closed = w->once;" ";")
meet_damage("one that leaves the only meeting is waited for" "if (w->once && !w->broken) {" "if (false) {")
meet_damage("two of a rank are one" "const bool alike = !w->once && " "const bool alike = ")
meet_damage("a second process of a rank is told alone" "w->broken = w->once ? HLY_CAUSE_TWIN : w->broken;" ";")
meet_damage("the list is closed without those that are seen" "place->lost = place->stopped;" "place->lost = true;")
meet_damage("the list waits for those that are not seen" "place->lost = place->stopped;" "place->lost = false;")
meet_damage("the list is closed before half of the time" "w->look_ns > w->list_ns ? w->look_ns : w->list_ns;" "w->look_ns;")
meet_damage("one that is late is on the list" "const bool late = w->listed &&" "const bool late = false &&")
meet_damage("one that is late is still awaited" "if (late && !w->closed)" "if (false)")
meet_damage("one that is alone is awaited" "        if (w->list_ns)
            move(w, place, HLY_PLACE_ENDED);" "        ;")
meet_damage("one that is not on the list is never missed" "w->place[p].lost = false;" ";")
meet_damage("a closed list has no deadline" "!(w->listed && is_complete(w));" "!w->listed;")
meet_damage("a list is closed again and again" "w->listed || !are_enough(w)" "!are_enough(w)")
meet_damage("a good end is not noticed" "place->member && well && !w->done" "false")

file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/damaged/meets.c @ONLY CONTENT
  "#include \"meet_explore.h\"
${meet_declared}const hly_worlds_ops_t *const hly_worlds_damaged[] = {${meet_listed}NULL};
")
list(APPEND MEET_DAMAGED ${CMAKE_CURRENT_BINARY_DIR}/damaged/meets.c)
set_source_files_properties(${MEET_DAMAGED} PROPERTIES COMPILE_OPTIONS "-w;-O1;-g0") # a damage leaves things unused
