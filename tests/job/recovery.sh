#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks die by kill -9, and the others go on: examples/recovery.c under halayrun --keep-going.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
export HALAY_DEBUG=error
for victim in 0 1 3; do
    run "$HALAYRUN" --keep-going -np 4 "$RECOVERY" $victim
    expect 0 "rank $victim has died"
    says err "rank $victim (pid .*was killed by signal 9"
    [ "$(grep -c 'of 3: 70$' out)" = 3 ] || fail "three ranks should have gone on"
done

# Without the option the job ends, and without a living rank it fails.
run "$HALAYRUN" -np 4 "$RECOVERY" 1
expect 137 "no --keep-going"
run "$HALAYRUN" --keep-going -np 2 false
expect 1 "all ranks have failed"
run "$HALAYRUN" --keep-going -np 3 "$RECOVERY"
expect 0 "nobody dies"
[ "$(grep -c 'of 3: 60$' out)" = 3 ] || fail "three ranks should have ended"

# One that is handed over is not halayrun's to keep going.
run "$HALAYRUN" --keep-going -np 2 --launcher mpirun true
expect 2 "another launcher"
says err "keep-going"

# A rank that stands still is left out by the deadline, and told so when it runs again.
export HALAY_DEADLINE=2
empty out
"$HALAYRUN" --keep-going -np 4 "$RECOVERY" 2 stop >out 2>err &
pid=$!
three_go_on() { [ "$(grep -c 'of 3: 70$' out)" = 3 ]; }
until_true three_go_on
pkill -CONT -P $pid recovery
wait $pid
status=$?
expect 0 "a rank that stands still"
says err "without it\|without this rank"
nothing_left
