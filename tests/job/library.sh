#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library as a user has it: ranks of a job add, and are told within 1 s when one leaves.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
for n in 1 2 3 4 8; do
    run "$HALAYRUN" -np $n "$JOB_RANK"
    expect 0 "$n ranks"
    for r in $(seq 0 $((n - 1))); do says out "^rank $r of $n, meet (halayrun), "; done
    nothing_left
done
run "$JOB_RANK"
expect 0 alone
says out "^rank 0 of 1, alone"

run "$HALAYRUN" -np 3 "$JOB_RANK" kill
expect 137 "a rank is killed"
says err "halayrun: rank 1 (pid [0-9]* on .*) was killed by signal 9 (SIGKILL)"
says err "rank 0 was told: "
says err "rank 2 was told: "
run "$HALAYRUN" -np 3 "$JOB_RANK" family
expect 137 "a rank is killed whose child lives on"
says err "rank 0 was told: "
says err "rank 2 was told: "
nothing_left
run "$HALAYRUN" -np 3 "$JOB_RANK" exit
expect 4 "a rank leaves without finalizing"
says err "rank 0 was told: "
says err "rank 2 was told: "
nothing_left
