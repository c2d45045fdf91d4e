# SPDX-License-Identifier: Apache-2.0
# Four guards are not in the list, since no run differs without them: what one of them stops another one has
# stopped before. A rank does not take from others that it has failed (who says so refuses it); it takes nothing from a
# coordinator before its own (which proposes what was taken, or cannot decide); and it ends if a value leaves it out
# (who decides that says LEFT_OUT). A contribution after the proposal is answered with that; without, the next
# question, or # the decision, serves as well.
damages(agreement agree_model.h hly_agreement_ops_t HLY_AGREEMENT_EACH src/agree/agree.c)
damage("a new value after one was taken" "    if (!a->ballot) {" "    if (true) {")
damage("no wait for votes for a proposal" "if (a->late || !awaits_any(a))" "if (true)")
damage("no wait for contributions" "if (awaits_any(a) && !a->late)" "if (false)")
damage("the next coordinator is not told" "} else if (a->voted_to != c) {" "} else if (a->voted_to < 0) {")
damage("the own flag is sent in place of the value's" ".flag = a->ballot ? a->value_flag : a->flag" ".flag = a->flag")
damage("a flag is not joined" "a->flag &= m->flag;" "(void)m;")
damage("a value is not taken over" "    if (m->ballot)
        take(a, m);
    else" "    if (!m->ballot)")
damage("the failed of others are not learnt" "failed[i] |= m->failed[i];" ";")
damage("who asks after the decision gets no answer" "if (m->what < HLY_AGREE_DECIDED && !a->left_out)" "if (false)")
damage("who is given up gets no answer" "    return a->call && (without" "    return false && (without")
damage("who decides does not pass it on" "        pass_on(a, sink);" "        (void)sink;")
damage("it is passed on to the two next to it only" "d < a->nranks; d *= 2" "d < 2; d *= 2")
damage("no deadline for a coordinator" ": r == c)" ": false)")
damage("no deadline for contributions" "is_other(a, r) && !is_in(a, HLY_SET_HEARD, r) : r" "false : r")
damage("no deadline for votes for a proposal" "a->late = true; /*" "/*")
damage("no word of the decision" "        tell_all(a, sink, HLY_AGREE_DECIDED);" "        (void)sink;")
damage("the value leaves out nobody who has died" "memcpy(set_of(a, HLY_SET_WITHOUT), set_of(a, HLY_SET_FAILED)"
  "memcpy(set_of(a, HLY_SET_WITHOUT), set_of(a, HLY_SET_ABSENT)")
damage("a vote for a proposal is not counted" "add(a, HLY_SET_TAKEN, from);" "(void)from;")
damage("no vote for a proposal is sent" "tell(a, sink, from, HLY_AGREE_VOTE);" "")
damage("LEFT_OUT is not heeded" "        a->left_out |= !a->decided || is_in(a, HLY_SET_WITHOUT, from);" "")
damages_end()
