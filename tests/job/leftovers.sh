#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whatever the ranks have started ends with the job, wherever it hides.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
# In the rank's group; in a session of its own; both outlive their rank.
run "$HALAYRUN" -np 2 bash -c "sleep 1000.$mark & setsid sleep 1000.$mark & exit 0"
expect 0
within 3000
nothing_left
run "$HALAYRUN" -np 2 bash -c "sleep 1000.$mark & setsid sleep 1000.$mark & sleep 0.2; kill -9 \$\$"
expect 137
within 3000
nothing_left
# They are deaf to SIGTERM, and hold the pipes of a prefixed job.
run "$HALAYRUN" -np 2 -l bash -c "trap '' TERM; setsid sleep 1000.$mark & echo done"
expect 0
within 3000
[ "$(sort out)" = "[0] done
[1] done" ] || fail "output"
nothing_left
# A child that ends quickly by itself after its rank is let be. On a busy machine it may not be quick.
for try in 1 2 3; do
    run "$HALAYRUN" -np 2 bash -c '(sleep 0.1; echo late) & exit 0'
    expect 0
    [ "$(grep -c late out)" = 2 ] && break
    [ $try -lt 3 ] || fail "children had no time to end"
done
nothing_left
# Nobody waits for the guard where it is stopped.
timeout -k 1 20 "$HALAYRUN" -np 1 sh -c 'until [ -e over ]; do sleep 0.02; done' &
job=$!
guard() { pgrep -P "$(pgrep -P $job -x halayrun)" -x halayrun-guard; }
until_true guard
guard=$(guard)
kill -STOP "$guard"
touch over
wait $job
status=$?
kill -KILL "$guard" 2>/dev/null && fail "the guard is left"
expect 0
nothing_left
