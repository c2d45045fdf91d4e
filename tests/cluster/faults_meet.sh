#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks of which one cannot join: another secret, a name that does not resolve, no link, a death: all end by
# the deadline and say why.
# shellcheck source-path=SCRIPTDIR source=faults_lib.sh
. "$(dirname "$0")/faults_lib.sh"

# Another secret; a name that does not resolve; no link.
begin 0 3 2 HALAY_SECRET=one "$rank" one
begin 1 1 2 HALAY_SECRET=two "$rank" one
await 5 5
says err.1 "do not have the same secret"
says err.0 "refused: its HALAY_SECRET is not that of rank 0"
report "another secret"

begin 0 3 2 "$rank" one
begin 1 1 2 MASTER_ADDR=nowhere.invalid "$rank" one
await 5 5
says err.1 "at 'nowhere.invalid'.*does not resolve"
says err.0 "1 of the 2 ranks did not come to the rendezvous of rank 0 (v3 port [0-9]*,"
report "a name that does not resolve"

veth cut 1
begin 0 3 2 "$rank" one
begin 1 1 2 "$rank" one
await 5 5
says err.1 "found no rendezvous of rank 0 at '10.78.0.3'"
veth join 1
report "no link"

# A rank that dies while the others meet: it has said hello, and rank 2 has not yet.
begin 0 3 3 "$rank" one
begin 1 1 3 "$rank" one
sleep 0.7
on 1 pgrep -x cluster_rank >pid
on 1 kill -KILL "$(cat pid)"
begin 2 2 3 "$rank" one
await 5 137 5
says err.0 "rank 1 (pid [0-9]* on v1) has left while rank 0 waited"
! grep "halay error" err.2 || fail "two voices"
report "a rank that dies while they meet"
nothing_left 3
