#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two nodes, which are network namespaces, of two ranks: a rank that is stopped is seen by the other of its node. A
# link that is cut for 8 s costs time; one that is cut for longer than its timeout ends the call, with names.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh
. "$(dirname "$0")/netns_lib.sh"
unset HALAY_DEADLINE
wire 10.79.0 2>why || { echo "skipped: no network namespaces here: $(tail -1 why)" && exit 77; }

all() { cat err.? >err; }

HALAY_STOP_TIMEOUT=4 begin_all "$JOB_WAITS" stop 3 0
for r in 0 1 2; do wait "${pids[$r]}" || was[$r]=$?; done
kill -KILL "${pids[3]}"
wait "${pids[3]}" 2>/dev/null
all
for r in 0 1 2; do ended $r 4 "^rank $r was told .* rank 3 of 4 on .* is stopped, for [0-9.]* s as far"; done
[ "$(sed -n 's/^rank [0-9]* was told.* ms: //p' err | sort -u | wc -l)" = 1 ] || fail "not one text"
says err "has waited for .*rank 3 of 4 on .* is stopped (SIG"

# away S VARIABLE=VALUE...: the wire is cut for so long, and ranks call for S + 12 s.
away() {
    new_port
    begin_all "$JOB_WAITS" loop 0 $(($1 + 12))
    until_true grep -q "is in round 100$" err.0
    ip -n "$net-1" link set eth0 down
    sleep "$1"
    ip -n "$net-1" link set eth0 up
}
away 8
await
all
for r in 0 1 2 3; do ended $r 0; done
says err "has acknowledged nothing for 2 s"

export HALAY_LINK_TIMEOUT=4
away 10
await
all
for r in 0 1 2 3; do ended $r 4 "^rank $r was told after .* is lost: "; done
for r in 0 1; do says err.$r "rank [23] of 4 on .* is lost: the link between it and rank [01] on .* is cut"; done
for r in 2 3; do says err.$r "rank [01] of 4 on .* is lost: the link between it and rank [23] on .* is cut"; done
says err "has waited for .* s at the latest; 4\.0 s after its link was cut, if it is (HALAY_LINK_TIMEOUT)"
nothing_left
