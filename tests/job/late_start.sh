#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay_init says within 2 s which ranks have not come, under halayrun and by variables.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh disable=SC2016
. "$(dirname "$0")/tcp_lib.sh"

run "$HALAYRUN" -np 3 bash -c '[ "$PMIX_RANK" != 1 ] || sleep 2.5; exec "$1"' sh "$JOB_RANK"
expect 0 "a late rank under halayrun"
[ "$(grep -c 'halay_init has waited for 1\.[0-9] s for 1 of the 3 ranks of node .*: rank 1 (pid [0-9]*: .*; not in halay_init)\. If that stays so it ends with an error in [0-9]* s at the latest$' err)" = 1 ] ||
    fail "halayrun: not one notice"

begin 0 0 4 "$JOB_RANK"
begin 2 2 4 "$JOB_RANK"
sleep 2.5
begin 1 1 4 "$JOB_RANK"
begin 3 3 4 "$JOB_RANK"
await
for r in 0 1 2 3; do ended $r 0; done
says err.0 "halay_init has waited for 1\.[0-9] s for 2 of 4 ranks to come to rank 0 (.*): rank 1, 3\. If that stays so it ends with an error in [0-9]* s at the latest$"
! grep -l "has waited" err.[123] || fail "not rank 0 alone"
nothing_left
