#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What goes wrong at the rendezvous is said on every rank by the deadline; strangers do no harm.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"
export HALAY_START_DEADLINE=4

# Some ranks never come.
start=$(date +%s%3N)
for r in 0 3; do begin $r $r 5 "$JOB_RANK"; done
await
ms=$(($(date +%s%3N) - start))
within 6000
for r in 0 3; do ended $r 1 "3 of the 5 ranks did not come to the rendezvous of rank 0 ($(hostname) port" "rank 1-2, 4;"; done
begin 1 1 2 "$JOB_RANK" # rank 0
begin absent 1 2 MASTER_ADDR=no-such-host.invalid "$JOB_RANK"
begin unknown 0 2 MASTER_ADDR=no-such-host.invalid MASTER_PORT=$((port + 20)) "$JOB_RANK"
await
new_port
ended 1 1 "rank 1 found no rendezvous of rank 0 at '127.0.0.1', ports [0-9]* to [0-9]*, within 4.0 s" "Connection refused"
ended absent 1 "at 'no-such-host.invalid', ports .*the name does not resolve"
ended unknown 1 "no-such-host.invalid', which does not resolve" "1 of the 2 ranks did not come"

# Two processes are one rank. The claim on the rank finds it on one node, before rank 0 does; another
# spelling of the address stands for another node.
export HALAY_START_DEADLINE=15
begin 0 0 3 "$JOB_RANK"
begin 1 1 3 "$JOB_RANK"
until_true has_sockets $((port + 101)) 01 1
begin heir 1 3 "$JOB_RANK"
wait "${pids[heir]}"
begin 2 2 3 "$JOB_RANK"
await
ended heir 1 "has the environment of rank 1, but process [0-9]* of this node is that rank already"
for r in 0 1 2; do ended $r 0; done
begin 0 0 4 "$JOB_RANK"
begin 1 1 4 "$JOB_RANK"
begin twin 1 4 MASTER_ADDR=localhost "$JOB_RANK"
begin 2 2 4 "$JOB_RANK"
await
for r in 0 1 twin 2; do ended $r 1 "two processes are the same rank: rank 1 (pid [0-9]* on .*) and rank 1 (pid"; done
begin 0 0 2 "$JOB_RANK"
until_true listens $((port + 101))
begin twin 0 2 MASTER_ADDR=localhost "$JOB_RANK"
wait "${pids[twin]}"
begin 1 1 2 "$JOB_RANK"
await
for r in 0 twin 1; do ended $r 1 "two processes are the same rank: rank 0 (pid .*) and rank 0 (pid"; done

# Another size; another secret, or none.
begin 0 0 2 "$JOB_RANK"
begin 1 1 3 "$JOB_RANK"
await
for r in 0 1; do ended $r 1 "rank 1 (pid [0-9]* on .*) has WORLD_SIZE=3, but rank 0 (pid .*) has WORLD_SIZE=2" "at port"; done
export HALAY_START_DEADLINE=4
begin 0 0 3 HALAY_SECRET=alpha "$JOB_RANK"
begin 1 1 3 HALAY_SECRET=beta "$JOB_RANK"
begin 2 2 3 "$JOB_RANK"
await
ended 0 1 "2 of the 3 ranks did not come" "a process at 127.0.0.1 that says it is rank [12] (pid [0-9]*) was refused: its HALAY_SECRET is not that"
ended 1 1 "do not have the same secret: HALAY_SECRET is set here and another there"
ended 2 1 "do not have the same secret: HALAY_SECRET is not set here and set there"
! cat err.* out.* | grep -E "alpha|beta" || fail "a secret is shown"

# A rank dies while others are awaited: those who are here are told at once, who comes then as well.
export HALAY_START_DEADLINE=20
begin 0 0 4 "$JOB_RANK"
begin 1 1 4 "$JOB_RANK"
begin 2 2 4 "$JOB_RANK"
until_true has_sockets $((port + 101)) 01 2
sleep 0.3
start=$(date +%s%3N)
{ kill -KILL "${pids[1]}" && wait "${pids[2]}"; } 2>/dev/null
ms=$(($(date +%s%3N) - start))
within 2000
begin 3 3 4 "$JOB_RANK"
await 2>/dev/null
for r in 0 2 3; do ended $r 1 "rank 1 (pid [0-9]* on .*) has left while rank 0 waited"; done
# Rank 0 dies.
begin 0 0 3 "$JOB_RANK"
begin 1 1 3 "$JOB_RANK"
until_true has_sockets $((port + 101)) 01 1
sleep 0.3
kill -KILL "${pids[0]}"
await 2>/dev/null
ended 1 1 "rank 1 said hello to rank 0 at '127.0.0.1' port .*, but got no answer"
nothing_left
