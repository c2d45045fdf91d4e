#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Signals to halayrun reach the ranks, which have the grace (--grace) to end; then all that is left is killed.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
set -m # as an interactive shell does: a job in the background does not ignore SIGINT
stop() { # signal, exit status, ranks' reaction, sleepers, options
    "$HALAYRUN" -np 2 "${@:5}" bash -c "$3 sleep 1000.$mark & sleep 1000.$mark; sleep 1000.$mark" >out 2>err </dev/null &
    local pid=$!
    until_true sleeping "$4"
    run kill "-$1" $pid
    local start
    start=$(date +%s%3N)
    wait $pid
    status=$?
    ms=$(($(date +%s%3N) - start))
    expect "$2" "SIG$1"
    within 2000
    nothing_left
}
# Each rank has a sleep in the background and one in the foreground.
stop TERM 143 "" 4
stop INT 130 "" 4
stop HUP 129 "" 4
stop QUIT 131 "" 4
stop TERM 143 "trap '' TERM INT;" 4 --grace 1
says err "signal 15 (SIGTERM): ending the job; the ranks have got it, and have 1 s to end (--grace)"
says err "2 ranks have not ended within 1 s of the signal: SIGKILL"
[ "$(wc -l <err)" = 2 ] || fail "each is to be said once"
stop INT 130 "trap '' TERM INT;" 4 --grace 1
stop TERM 143 "trap '' TERM INT;" 4 --grace 0
[ "$ms" -lt 1000 ] || fail "no grace took $ms ms"

# Under nohup SIGHUP is ignored, and in the background of a script SIGINT, by halayrun and by its ranks: the job goes
# on. SIGTERM ends it.
ignoring() { # COMMAND...
    bash -c 'trap "" INT HUP; exec "$@"' - "$@" >out 2>err </dev/null &
    local pid=$!
    until_true sleeping 2
    kill -INT $pid && kill -HUP $pid
    sleep 0.5
    sleeping 2 || fail "$1: what it ignores ended it"
    kill -TERM $pid
    wait $pid
    status=$?
    expect 143 "$1, where SIGINT and SIGHUP are ignored"
    nothing_left
}
ignoring "$HALAYRUN" -np 2 sleep 1000.$mark
ignoring "$(dirname "$0")/../../scripts/end-all" "$HALAYRUN" -np 2 sleep 1000.$mark

# Ranks that save for longer than a second, and are let: all ways to begin, and a shell around the program. Their
# children, which serve them meanwhile, are let be till they have ended. Who is first does not wait for the others' time.
cat >saves.sh <<END
sleep 1000.$mark & child=\$!
stop=
trap stop=1 TERM
touch up.\$1
until [ \$stop ]; do sleep 0.05; done
sleep 1.5
kill -0 \$child && echo saved
exit 143
END
saves() { # how many, halayrun and its words
    local n=$1 pid
    shift
    rm -f up.*
    "$@" >out 2>err </dev/null &
    pid=$!
    until_true sh -c "[ \$(ls up.* | wc -l) = $n ]"
    kill -TERM $pid
    local start
    start=$(date +%s%3N)
    wait $pid
    status=$?
    ms=$(($(date +%s%3N) - start))
    [ "$(grep -c saved out)" = "$n" ] || fail "$*: ranks had no time to save"
    [ "$(grep -c "signal 15" err)" = 1 ] || fail "$*: the signal is to be said once"
    within 12000
    nothing_left
}
saves 2 "$HALAYRUN" -np 2 bash -c 'exec bash saves.sh $$'
expect 143 "ranks that save"
saves 2 "$HALAYRUN" -np 2 -l sh -c 'bash saves.sh $$; true'
expect 143 "a shell around ranks that save"
saves 2 "$HALAYRUN" -np 2 sh -c '{ bash saves.sh $$ >&3 | cat; } 3>&1; true'
expect 143 "a pipeline of ranks that save"
saves 2 "$HALAYRUN" -np 2 --min-np 1 bash -c 'exec bash saves.sh $$'
expect 143 "ranks that change, and save"

# The second signal shortens it.
"$HALAYRUN" -np 2 bash -c "trap '' TERM; touch up2.\$\$; sleep 1000.$mark; sleep 1000.$mark" >out 2>err </dev/null &
until_true sh -c '[ $(ls up2.* | wc -l) = 2 ]'
kill -TERM $!
sleep 0.5
start=$(date +%s%3N)
kill -TERM $!
wait $!
status=$? ms=$(($(date +%s%3N) - start))
expect 143 "two signals"
within 5000
nothing_left

# A rank that fails costs the others the second that they have had, not the grace.
start=$(date +%s%3N)
run "$HALAYRUN" -np 2 bash -c '[ $PMIX_RANK = 0 ] && exit 3; trap "" TERM; sleep 1000.'$mark'; sleep 1000.'$mark
expect 3 "a rank that fails"
within 10000
nothing_left

# Ctrl-C that a program between the terminal and halayrun passes on is one: ranks have time.
"$HALAYRUN" -np 2 bash -c 'trap "sleep 0.1; echo saved; exit" INT; touch up.$PMIX_RANK; while :; do sleep 0.05; done' >out 2>err </dev/null &
until_true test -e up.0 -a -e up.1
kill -INT $! && kill -TERM $!
wait $!
status=$?
expect 130 "SIGINT and SIGTERM at once"
[ "$(cat out)" = "saved
saved" ] || fail "a second signal at once cost the ranks their time: $(cat out)"
nothing_left
rm up.?

# SIGUSR1 goes to the ranks and leaves their children alone.
"$HALAYRUN" -np 2 bash -c 'sleep 1000.'$mark' & trap "echo got \$PMIX_RANK; kill -0 \$! && exit 0" USR1
    touch up.$PMIX_RANK; while :; do sleep 0.05; done' >out 2>err </dev/null &
until_true test -e up.0 -a -e up.1
kill -USR1 $!
wait $!
status=$?
expect 0 SIGUSR1
says out "got 0"
says out "got 1"
nothing_left
