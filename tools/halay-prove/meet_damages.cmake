# SPDX-License-Identifier: Apache-2.0
# The first of them, the third and the fourth are what launchers did before the exploration.
damages(meeting meet_model.h hly_worlds_ops_t HLY_WORLDS_EACH boot/common/world.c)
damage("who comes second is refused, a member too" "w->place[b].member && !w->place[a].member ? a : b" "b")
damage("after a good end as many are needed as before" "w->done ? 1 : w->least" "w->least")
damage("after a good end all wait for the late" "enough = are_enough(w);" "enough = hly_worlds_asking(w) >= w->least;")
damage("members first, also where a rank is its place" "by_place = hly_worlds_is_static(w)" "by_place = false")
damage("a twin is taken" "if (place->state == HLY_PLACE_ASKING && !alike)" "if (false)")
damage("others wait for one that leaves" "place->member && !place->leaves &&
           !is_lost" "place->member &&
           !is_lost")
damage("others wait for one that is called lost" "           !is_lost(w, place->rank);" "           true;")
damage("another process in a member's place is a member" "!place->leaves && same;" "!place->leaves;")
damage("who has left is a member" "place->member && !place->leaves && same" "place->member && same")
damage("who was late once is late" "place->leaves = place->lost = " "place->leaves = ")
damage("worlds are not numbered" "w->epoch++;" "w->epoch = 1;")
damage("a refused member is forgotten"
  "if (asks(w, p))
            send_back(w, &w->place[p], true);"
  "if (asks(w, p)) {
            w->place[p].was_refused = true;
            move(w, &w->place[p], HLY_PLACE_STARTED);
        }")
damage("a member that has hung up is forgotten" "send_back(w, place, place->was_refused || w->once);"
  "place->was_refused |= w->once, move(w, place, HLY_PLACE_STARTED);")
damage("who has hung up still asks" "    if (place->state != HLY_PLACE_ASKING)
        return;" "    return;")
damage("no deadline" "    const bool over = waits && now >= w->decide_ns;
    if (look" "    const bool over = false;
    if (look")
damage("no deadline for newcomers" "w->expire_ns && now >= w->expire_ns &&" "false &&")
damage("newcomers join a job that ends" "w->done && refuse_newcomer" "false && refuse_newcomer")
damage("an end is not told to those that wait" "if (hly_worlds_is_static(w) && w->first_ended >= 0)" "if (false)")
damage("one end of two is forgotten" "i < w->nplaces && w->first_ended < 0" "i < 0 && w->first_ended < 0")
damage("a broken meeting is not told" "    if (w->broken)
        return act" "    if (false)
        return act")
damage("a failure is told for ever" "    w->failed = -1;" "    ;")
damage("a failure is not told" "    if (w->failed >= 0)" "    if (false)")
damage("who is left out lives on" "const bool left_out = place->state" "const bool left_out = false && place->state")
damage("who is called lost is reported again and again" "        place->reported = true;" "        ;")
damage("too few are a world" "return n >= (" "return n >= 1 || n >= (")
damage("nobody is waited for" "!are_enough(w) || !is_complete(w))
        return false;" "!are_enough(w))
        return false;")
damage("the first world does not wait" "|| !w->epoch;
    return place" ";
    return place")
damage("the answer comes at the end of the time" "now + left - spare" "now + left")
damage("members by place" "w->order[w->place[p].rank] = p;" "w->order[p] = p;")
damage("who was a member stays one" "        place->member = false;" "        ;")
damage("a newcomer's time is the members'" "= newcomer ? &w->expire_ns" "= false ? &w->expire_ns")
damage("the time of one that asks no more counts" "w->stale |= place->state == HLY_PLACE_ASKING;" ";")
damage("who asks no more is counted" "- (place->state == HLY_PLACE_ASKING);" ";")
damage("who is stopped is useless at once" "unfit && now - place->unfit_ns >= w->timeout_ns" "unfit")
damage("who is late is killed" "if (useless && !enough)" "if (over || (useless && !enough))")
damage("nobody goes on without the late" "if (hly_worlds_is_awaited(w, p) && (useless || (over && enough)))"
  "if (hly_worlds_is_awaited(w, p) && useless)")
damage("nobody goes on without the stopped" "(useless || (over && enough))" "(over && enough)")
damage("newcomers wait for the stopped" "const bool wait = w->decide_ns || are_stopped(w)"
  "const bool wait = w->decide_ns")
damage("a meeting that was held is held again" "(w->epoch || w->closed || late)" "(w->closed || late)")
damage("a meeting that has failed goes on" "w->closed = w->once;" ";")
damage("one that leaves the only meeting is waited for" "if (w->once && !w->broken) {" "if (false) {")
damage("two of a rank are one" "const bool alike = !w->once && " "const bool alike = ")
damage("a second process of a rank is told alone" "w->broken = w->once ? HLY_CAUSE_TWIN : w->broken;" ";")
damage("the list is closed without those that are seen" "place->lost = place->stopped;" "place->lost = true;")
damage("the list waits for those that are not seen" "place->lost = place->stopped;" "place->lost = false;")
damage("the list is closed before half of the time" "w->look_ns > w->list_ns ? w->look_ns : w->list_ns;" "w->look_ns;")
damage("one that is late is on the list" "const bool late = w->listed &&" "const bool late = false &&")
damage("one that is late is still awaited" "if (late && !w->closed)" "if (false)")
damage("one that is alone is awaited" "        if (w->list_ns)
            move(w, place, HLY_PLACE_ENDED);" "        ;")
damage("one that is not on the list is never missed" "w->place[p].lost = false;" ";")
damage("a closed list has no deadline" "!(w->listed && is_complete(w));" "!w->listed;")
damage("a list is closed again and again" "w->listed || !are_enough(w)" "!are_enough(w)")
damage("a good end is not noticed" "place->member && well && !w->done" "false")
damages_end()
