#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All ranks see the same job, each its own rank, over several epochs; two jobs differ.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
for case in pmix:1 pmix:2 pmix:4 pmix:8 meet:1 meet:5; do
    n=${case#*:} boot=${case%:*}
    run "$HALAYRUN" -np $n -x JOB_BOOT=$boot "$JOB_CLIENT" info
    expect 0 "$n ranks"
    [ "$(wc -l <out)" = $n ] || fail "$n ranks: not $n lines"
    [ "$(sed 's/ |.*//' out | sort -u | wc -l)" = 1 ] || fail "$n ranks see different jobs"
    says out "^$n ranks on 1 nodes, $boot (halayrun), job=[0-9a-f]\{32\} secret=[0-9a-f]\{32\} 0@0:$(hostname)"
    for r in $(seq 0 $((n - 1))); do
        says out "| rank $r local $r of $n node 0$"
        says out " $r@0:"
    done
    ! grep -q 'secret=0\{32\}' out || fail "no secret"
    sed -n '1s/.*\(job=[0-9a-f]* secret=[0-9a-f]*\).*/\1/p' out >>seen
done
[ "$(cut -d' ' -f1 seen | sort -u | wc -l)" = 6 ] || fail "jobs share their names"
[ "$(cut -d' ' -f2 seen | sort -u | wc -l)" = 6 ] || fail "jobs share their secrets"
run env -u PMIX_RANK -u PMIX_NAMESPACE "$JOB_CLIENT" alone
expect 0 alone
says out "announced 1"
run env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 "$JOB_CLIENT" alone
expect 0 "a Slurm step without PMIx"
says out "announced 4"
run env -u SLURM_STEP_ID SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 "$JOB_CLIENT" alone
says out "announced 1"
nothing_left
