#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of halayrun takes the ranks, and what they have started, along; of a guard, nothing but folders stays.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
start() {
    "$HALAYRUN" -np 2 bash -c "sleep 1000.$mark & exec sleep 1000.$mark" >out 2>err </dev/null &
    pid=$!
    until_true sleeping 4
}
empty() { [ -z "$(ls -A "$TMPDIR")" ]; }
start
kill -KILL $pid
until_true sleeping 0
until_true empty

# The guard is killed first: the kernel still kills the ranks, the next halayrun removes the folder.
start
pkill -KILL -P $pid halayrun-guard || fail "no guard"
kill -KILL $pid
until_true sleeping 2 # what the ranks had started: only the guard could have known
pkill -KILL -fx "sleep 1000[.]$mark"
! empty || fail "who removed the folder?"
run "$HALAYRUN" -np 1 true
expect 0
empty || fail "the next halayrun did not remove the folder"

# It does not remove that of a living one.
start
run "$HALAYRUN" -np 1 true
! empty || fail "the folder of a living halayrun is gone"
kill -TERM $pid
wait $pid
nothing_left
