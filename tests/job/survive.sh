#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay_comm_agree and halay_comm_shrink wait for a rank: one rank says so, halay-info ps shows it, and who is stopped
# for longer than the timeout is left out, the coordinator (rank 0) too. With the deadline as it is if nobody sets it.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
unset HALAY_DEADLINE

go() { run timeout -k 5 100 "$HALAYRUN" --keep-going -np 4 "$JOB_SURVIVE" "$@"; }
go_on() { # COUNT SIZE FAILED: so many ranks go on with so many
    [ "$(grep -c "goes on with $2; failed:$3[.]" err)" = "$1" ] || fail "$1 ranks should go on with $2, without '$3'"
}
one_voice() { # TEXT: notices that say so, of one rank; on a busy machine there may be others, of who is slow
    grep 'has waited for' err >notices || fail "no notice"
    grep -q -- "halay_comm_agree (agreement 1 on this communicator) has waited for .*$1" notices || fail "no notice says: $1"
    [ "$(grep -- "$1" notices | sed 's/.*\[\(rank [0-9]*\) .*/\1/' | sort -u | wc -l)" = 1 ] || fail "notices of several ranks"
}
took() { # FROM TO: ms, of all that agreed
    sed -n 's/.*agreed after \([0-9]*\) ms.*/\1/p' err | while read -r ms; do
        [ "$ms" -ge "$1" ] && [ "$ms" -le "$2" ] || echo "$ms" >late
    done
    [ ! -e late ] || fail "it took $(cat late) ms"
}

for transport in shm tcp; do
    export HALAY_TRANSPORT=$transport
    for who in 0 2; do
        export HALAY_STOP_TIMEOUT=3
        go stop $((1 << who)) 9
        expect 0 "rank $who was stopped for long, $transport"
        go_on 3 3 " $who"
        took 2800 11000
        one_voice "rank $who of 4 on .* is stopped (SIG.*the others go on without it in [0-5] s"
        says err "rank $who, agree after .* the others have gone on without this rank"
    done
    export HALAY_STOP_TIMEOUT=20
    go stop 4 3
    expect 0 "a rank that is continued, $transport"
    go_on 4 4 ""
    go die 5
    go_on 2 2 " 0 2"
done
# What others gave up has not ended well where they went on without this rank. The first of the ranks has all messages.
HALAY_STOP_TIMEOUT=1 HALAY_ALGORITHM=allreduce=star go call 1 6
expect 0 "rank 0 was stopped in a call"
! grep "ended well" err || fail "rank 0 made its call"
go nap 1 3
expect 0 "a rank that sleeps"
go_on 4 4 ""
one_voice "rank 0 of 4 on .* it is not in Halay, and sleeps"

# Not the world, whose numbers are others: rank 3 of the job is 0 of the odd ranks.
HALAY_STOP_TIMEOUT=3 go part stop 8 12
go_on 2 2 ""
go_on 1 1 " 0"

ps_says() { "$INFO" ps "$job" >seen 2>&1 && grep -qE -- "$1" seen; }
"$HALAYRUN" --keep-going -np 4 "$JOB_SURVIVE" nap 4 5 >out 2>err &
job=$!
until_true ps_says 'rank 0 .*: in halay_comm_agree for [0-9.]* s; waits for rank 2$'
until_true ps_says 'rank 3 .*: in halay_comm_agree for [0-9.]* s; waits for rank 0$'
until_true ps_says '^ *agreement 1 of communicator [0-9a-f]* [(]4 ranks[)]:$'
sed -n '/agreement 1/,$p' seen >blamed
[ "$(grep -c '^ *rank' blamed)" = 1 ] || fail "several are blamed for the agreement: $(cat blamed)"
grep -q '^ *rank 2 has not called it: ' blamed || fail "who keeps the agreement from its end: $(cat blamed)"
wait "$job"
status=$?
expect 0 "while halay-info looked"
nothing_left
