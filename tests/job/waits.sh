#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that are away for a while cost time only; one that stays stopped ends the call, with one text on all. With
# the deadline as it is if nobody sets it. Takes "long": each timeout over each transport, and a rank that computes
# for 40 s.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
unset HALAY_DEADLINE

# The ranks but $1 were told the same, that it is stopped, after $2 to $3 seconds.
told() {
    grep '^rank [0-9]* was told' err | grep -v "^rank $1 " | sed 's/^.* ms: //' | sort -u >texts
    [ "$(wc -l <texts)" = 1 ] || fail "not one text: $(cat texts)"
    grep -q ": rank $1 of 4 on .* is stopped" texts || fail "$(cat texts)"
    [ "$(grep -c '^rank [0-9]* was told' err)" = 3 ] || fail "not all were told"
    sed -n 's/^rank [0-9]* was told after \([0-9]*\) ms.*/\1/p' err | while read -r took; do
        [ "$took" -ge $(($2 * 1000)) ] && [ "$took" -le $(($3 * 1000)) ] || echo "$took ms" >late
    done
    [ ! -e late ] || fail "told after $(cat late)"
}
one_voice() { # TEXT: notices that say so, of one rank; on a busy machine there may be others, of who is slow
    grep 'has waited for' err >notices || fail "no notice"
    grep -q -- "$1" notices || fail "no notice says: $1"
    [ "$(grep -- "$1" notices | sed 's/.*\[\(rank [0-9]*\) .*/\1/' | sort -u | wc -l)" = 1 ] || fail "notices of several ranks"
}

# The same job by variables, of which rank $2 stays stopped or dies: as run does, for the others.
by_variables() {
    local port=$((20000 + $$ % 60 * 200)) begin r pids=()
    begin=$(date +%s%3N)
    for r in 0 1 2 3; do
        HALAY_DEADLINE=40 RANK=$r WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$JOB_WAITS" "$@" 2>"err.$r" &
        pids+=($!)
    done
    for r in 0 1 2 3; do [ "$r" = "$2" ] || wait "${pids[r]}"; done
    ms=$(($(date +%s%3N) - begin))
    kill -KILL "${pids[$2]}" 2>/dev/null
    wait
    cat err.? >err
}
if [ "${PART:-}" = variables ]; then
    HALAY_TRANSPORT=shm HALAY_LINK_TIMEOUT=60 by_variables die 2 0
    [ "$(grep -c '^rank [013] was told .* rank 2 of 4 .* is lost' err)" = 3 ] || fail "by variables: a death before they have met"
    within 15000
    HALAY_TRANSPORT=shm HALAY_STOP_TIMEOUT=3 by_variables stop-early 1 0
    told 1 3 15
    one_voice "rank 1 of 4 on .* is stopped (SIG"
    nothing_left
    exit 0
fi

who=0
for transport in shm tcp; do
    export HALAY_TRANSPORT=$transport
    export HALAY_STOP_TIMEOUT=20
    run "$HALAYRUN" -np 4 "$JOB_WAITS" stop $((who % 4)) 4
    expect 0 "continued within the timeout, $transport"
    one_voice "rank $((who % 4)) of 4 on .* is stopped (SIG"
    timeouts=(3)
    [ $transport = shm ] || timeouts=(8)
    [ "${1:-}" != long ] || timeouts=(3 8)
    for timeout in "${timeouts[@]}"; do
        export HALAY_STOP_TIMEOUT=$timeout
        who=$(((who + 3) % 4))
        run "$HALAYRUN" -np 4 "$JOB_WAITS" stop $who 0
        expect 4 "stopped for good, $transport, $timeout s"
        told $who "$timeout" $((timeout + 12))
        one_voice "rank $who of 4 on .* is stopped (SIG"
    done
    export HALAY_STOP_TIMEOUT=3
    run timeout 60 "$HALAYRUN" -np 4 "$JOB_WAITS" stop-long 1 0
    expect 4 "stopped in a long call, $transport"
    told 1 3 15
    # It goes on about when the others have agreed, or just before: whatever they are told, it is about that one.
    if [ $transport = tcp ]; then
        HALAY_STOP_TIMEOUT=1 run timeout 60 "$HALAYRUN" -np 4 "$JOB_WAITS" stop 3 3
        ! grep 'was told after .* rank [012] of 4' err || fail "an innocent rank is named"
    fi
    unset HALAY_STOP_TIMEOUT
    # A rank that has met nobody, or one other only, dies: no link of it can end. Or it is stopped.
    for when in die die-between; do
        HALAY_LINK_TIMEOUT=60 run timeout 60 "$HALAYRUN" --keep-going -np 4 "$JOB_WAITS" $when 2 0
        [ "$(grep -c '^rank [013] was told .* rank 2 of 4 .* is lost' err)" = 3 ] || fail "a death before they have met"
        within 15000
    done
    moments=(early)
    [ $transport = shm ] || moments=(between)
    [ "${1:-}" != long ] || moments=(early between)
    for when in "${moments[@]}"; do
        who=$(((who + 1) % 4))
        HALAY_STOP_TIMEOUT=3 run timeout 60 "$HALAYRUN" -np 4 "$JOB_WAITS" stop-$when $who 0
        expect 4 "stopped before they have met, $transport"
        told $who 3 15
        one_voice "rank $who of 4 on .* is stopped (SIG"
    done
    run "$HALAYRUN" -np 4 "$JOB_WAITS" nap 2 3
    expect 0 "it computes, $transport"
    one_voice "rank 2 of 4 on .* it is not in Halay, and sleeps"
    HALAY_STALL=0 run "$HALAYRUN" -np 2 "$JOB_WAITS" nap 1 2
    ! grep -q "has waited" err || fail "a notice, and HALAY_STALL is 0"
done
# A rank that waits in another call for the culprit is not called one; a death counts though the neighbour is away.
HALAY_DEADLINE=3 run timeout 60 "$HALAYRUN" --keep-going -np 4 "$JOB_WAITS" halves 2 6
[ "$(grep '^rank [13] was told .* rank 2 of 4 .* has not made .*: it is not in Halay, and sleeps' err | sed 's/.* ms: //' | uniq -c | awk '{print $1}')" = 2 ] ||
    fail "ranks 1 and 3 blame another than rank 2, or say not what it does"
grep -q 'has waited .* rank 0 of 4 on .* it is in another one' err || fail "no notice says where rank 0 is"
! grep -q 'rank 0 of 4 .* not in Halay' err || fail "rank 0 is in Halay"
run timeout 60 "$HALAYRUN" --keep-going -np 4 "$JOB_WAITS" apart 1 5
grep '^rank [23] was told after [1-4]\?[0-9]\{1,3\} ms: rank 1 of 4 .* is lost' err | wc -l | grep -qx 2 || fail "a death beside who is away"
HALAY_DEADLINE=8 run timeout 60 "$HALAYRUN" --keep-going -np 8 "$JOB_WAITS" gone 3 5
grep '^rank [056] was told after [1-4]\?[0-9]\{1,3\} ms: rank 3 of 8 .* is lost' err | wc -l | grep -qx 3 || fail "a death that is known, and no neighbour's"
# Who was stopped finds first what has come meanwhile.
HALAY_DEADLINE=2 run timeout 60 "$HALAYRUN" -np 2 "$JOB_WAITS" overslept 1 3
expect 0 "stopped until the deadline had passed"
if [ "${1:-}" = long ]; then
    HALAY_STOP_TIMEOUT=3 run timeout 60 "$HALAYRUN" -np 4 "$JOB_WAITS" stop-apart 1 20
    grep '^rank [23] was told after [3-9][0-9]\{3\} ms: .* rank 1 of 4 .* is stopped' err | wc -l | grep -qx 2 || fail "a stop beside who is away"
    [ "$(sed -n 's/^rank [23] was told.* ms: //p' err | sort -u | wc -l)" = 1 ] || fail "a stop beside who is away: two texts"
    run "$HALAYRUN" -np 4 "$JOB_WAITS" nap 1 40
    expect 0 "a checkpoint of 40 s"
fi
nothing_left
