#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Signals to halayrun reach the ranks and what these have started; the job is over within 2 s.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
set -m # as an interactive shell does: a job in the background does not ignore SIGINT
stop() { # signal, exit status, ranks' reaction
    "$HALAYRUN" -np 2 bash -c "$3 sleep 1000.$mark & sleep 1000.$mark; sleep 1000.$mark" >out 2>err </dev/null &
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
stop TERM 143 "trap '' TERM INT;" 4
stop INT 130 "trap '' TERM INT;" 4

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
