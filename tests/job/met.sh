#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank that the others have given up before they have met never goes on beside them. Ranks that wait in a circle over
# a communicator that one of them has not made are told so. A group of calls that fails has one text. Takes "long": each
# 50 times.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
unset HALAY_DEADLINE HALAY_TRANSPORT

go() { run timeout -k 5 100 "$HALAYRUN" --keep-going -np 4 "$JOB_MET" "$@"; }
one_text() { # WHAT COUNT: so many ranks have said of it, all in the same words
    sed -n "s/^rank [0-9]*, $1: //p" err >texts
    [ "$(wc -l <texts)" = "$2" ] || fail "$(wc -l <texts) ranks, not $2, have told of: $1"
    [ "$(sort -u texts | wc -l)" = 1 ] || fail "two texts: $(sort -u texts)"
}

contact() { # TRANSPORT
    HALAY_TRANSPORT=$1 HALAY_DEADLINE=2 go contact 5
    [ "$(grep -c 'goes on with 3$' err)" = 3 ] || fail "three ranks should go on with three, $1"
    says err 'rank 3, shrink: .*the others have gone on without this rank'
}
unmade() {
    HALAY_DEADLINE=4 go unmade 0
    sed -n 's/^rank [0-9]*, [a-z]*: //p' err >texts
    [ "$(grep -c "waited in a circle.*rank 2 is in allreduce.*rank 3 is in barrier" texts)" -ge 3 ] || fail "the circle is not told"
    grep "^rank 3" err | grep -q "must make communicators of one parent in the same order" || fail "rank 3 is told something else"
}
group() {
    HALAY_STOP_TIMEOUT=2 go group 0
    one_text group 3
    says texts 'rank 1 of 4 .*is stopped'
}

times=1
[ "${1:-}" != long ] || times=50
for ((i = 0; i < times; i++)); do
    contact tcp
    [ $times = 1 ] || contact ucx
    contact shm
    unmade
    group
done
nothing_left
