#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that do not come to halay_init: one of the others says after a second who and what is known of them; their
# deadline ends it, not timeout, and names them. One that is only late is waited for, and is of the same node. One
# that has ended is told at once, if halayrun knows. Nobody else is named.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
host=$(hostname)
run "$HALAYRUN" -np 3 "$JOB_CLIENT" absent
expect 0
says err "not all of the 3 ranks joined within 1.5 s: on $host rank 0 (pid [0-9]*: sleeps; not in halay_init)\. "

# Rank $1 does what $2 says before it is a rank at all.
first() {
    local without=
    [ $boot = meet ] || without="export HALAY_JOB=\${HALAY_JOB/;meet=/;no=};"
    run timeout 60 "$HALAYRUN" "${@:3}" -np 3 bash -c "$without [ \$PMIX_RANK != $1 ] || $2; exec \"\$0\"" "$JOB_RANK"
}
only() { # RANK: is named
    ! grep -E 'halay (warning|error)' err | grep -v 'that had ended already' | grep -oE 'rank [0-9] \((pid|no process|on)[^)]*' |
        grep -v "^rank $1 (" | grep -v "^rank 0 (pid [0-9]* on" || fail "others than rank $1 are named"
}

# RANKS TEXT: so many were told this by halay_init, and the log has it.
told() {
    [ "$(grep -c "^rank [0-9] was told: the job could not be joined through $boot: .*$2" err)" = "$1" ] ||
        fail "not $1 were told: $2"
    says err "\(halay error\|halayrun\): $2"
}

voices=0
for case in meet:0 meet:2 pmix:0; do
    boot=${case%:*} who=${case#*:}
    HALAY_START_DEADLINE=5 first $who 'kill -STOP $$'
    expect 1 "rank $who is stopped"
    within 20000
    [ "$(grep -c "for 1 of the 3 ranks of node $host: rank $who (pid [0-9]*: stopped; not in halay_init)\(\. If that stays so .* at the latest\)\?$" err)" -ge 1 ] ||
        fail "no notice"
    [ "$(grep -c 'halay_init has waited for 1\.' err)" -le 1 ] || fail "not one voice"
    told 2 "not all of the 3 ranks .* on $host rank $who (pid [0-9]*: stopped; not in halay_init)\. .*HALAY_START_D"
    only $who

    # By more than half of the deadline.
    HALAY_START_DEADLINE=6 first $who 'sleep 3.5'
    expect 0 "rank $who is late"
    [ "$(grep -c "of 3, $boot (halayrun), shm$" out)" = 3 ] || fail "rank $who is late: not one node"
    ! grep -q "node of its own" err || fail "rank $who is late"
    only $who

    if [ $boot = pmix ]; then # stopped when another one has come, and waits in PMIx's fence
        HALAY_START_DEADLINE=5 first 2 'sleep 3; [ $PMIX_RANK != 0 ] || { sleep 1.5; kill -STOP $$; } & true'
        expect 1 "rank 0 is stopped later"
        told 1 "not all of the 3 ranks .* on $host rank 0 (pid [0-9]*: stopped; in halay_init)\. .*HALAY_START_D"
    fi
    [ $boot = meet ] || continue # nobody tells PMIx's ranks who has ended
    for how in 'kill -KILL $$' 'exit 3' 'exit 0'; do
        first $who "$how" --keep-going
        within 20000
        case $how in kill*) how='was killed by signal 9' ;; *) how="exited with status ${how#* }" ;; esac
        told 2 "rank $who (pid [0-9]* on $host) has ended before all ranks had joined the job: it $how"
        voices=$((voices + $(grep -cE 'halay error|halayrun: .* has ended' err)))
        only $who
    done
done
[ $voices = 6 ] || fail "$voices voices for six deaths"

boot=meet
# Who comes when others have given up is told who failed first, not who did then: rank 1 was killed, rank 0 was told of
# it, rank 2 is late. Nobody says it twice.
first 1 'kill -KILL $$; [ $PMIX_RANK != 2 ] || sleep 2.5' --keep-going
told 2 "rank 1 (pid [0-9]* on $host) has ended .*killed by signal 9"
[ "$(grep -cE "halay error|halayrun: .* has ended" err)" = 1 ] || fail "not one voice"
says err "halayrun: rank 0 (pid [0-9]* on $host): exited with status 1, its halay_init() has failed"
says err "halayrun: rank 1 (pid [0-9]* on $host): killed by signal 9, has not called halay_init()"

# One whose halay_init has failed before it joined.
first 1 'export HALAY_DEADLINE=no' --keep-going
told 2 "halay_init has failed on rank 1 (pid [0-9]* on $host; it exited with status 1): HALAY_DEADLINE is 'no'"
[ "$(grep -cE "halay error|halayrun: halay_init has failed" err)" = 2 ] || fail "not one voice beside its own"
# It lives on: the others need not wait for their deadline.
HALAY_START_DEADLINE=30 first 1 '{ HALAY_DEADLINE=no "$0"; exec sleep 1000.'$mark'; }'
expect 1
within 20000
told 2 "halay_init has failed on rank 1 (pid [0-9]* on $host; it goes on): HALAY_DEADLINE is 'no'"
nothing_left
