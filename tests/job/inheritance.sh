#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process that a rank forks or starts has the rank's environment, and is told that it is not the rank.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
run "$HALAYRUN" -np 2 "$JOB_CLIENT" children
expect 0
within 5000
says err "is that rank already"
says err "was forked from rank 1"
# A job within a job has its own environment.
run "$HALAYRUN" -np 2 "$HALAYRUN" -np 3 "$JOB_CLIENT" info
expect 0 "a job within a job"
[ "$(grep -c '^3 ranks on 1 nodes' out)" = 6 ] || fail "not two jobs of three"
[ "$(grep -o ' secret=[0-9a-f]*' out | sort -u | wc -l)" = 2 ] || fail "not two secrets"
# What halayrun says itself, alone, and where no rank can write.
run "$HALAYRUN" --notes-fd 9 -np 1 sh -c 'echo said >&2; if [ -e /proc/self/fd/9 ]; then exit 4; fi; exit 3' 9>notes
expect 3 "--notes-fd"
[[ $(cat notes) =~ ^"halayrun: rank 0 (pid "[0-9]*" on "[^$'\n']*") exited with status 3"$ ]] || fail "the notes: $(cat notes)"
[ "$(grep -v '^said$' err)" = "$(cat notes)" ] || fail "they differ from the notes"
# It ends with the program that has started it so.
bash -c '"$HALAYRUN" --notes-fd 9 -np 2 sleep '1000.$mark' & echo $! >runs; wait' >out 2>err 9>notes </dev/null &
until_true sleeping 2
kill -KILL $!
until_true eval '! kill -0 $(<runs) 2>/dev/null'
says err "signal 15 (SIGTERM): ending the job"
nothing_left
# A process that outlives its job is told that the launcher is gone.
"$HALAYRUN" -np 1 printenv >variables
readarray -t variables < <(grep '^PMIX_' variables)
run env "${variables[@]}" "$JOB_CLIENT" late
expect 0 "a job that has ended"
within 5000
nothing_left
