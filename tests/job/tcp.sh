#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs by variables: one identity, the library over it, epochs, children; nothing stays connected.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"
for n in 1 2 4 8; do
    job $n JOB_BOOT=tcp "$JOB_CLIENT" info
    cat out.* >out
    [ "$(wc -l <out)" = $n ] || fail "$n ranks: not $n lines"
    [ "$(sed 's/ |.*//' out | sort -u | wc -l)" = 1 ] || fail "$n ranks see different jobs"
    says out "^$n ranks on 1 nodes, tcp, job=[0-9a-f]\{32\} secret=[0-9a-f]\{32\} 0@0:$(hostname)=$([ $n = 1 ] || echo 127.0.0.1/[1-9])"
    for ((r = 0; r < n; r++)); do says out.$r "| rank $r local $r of $n node 0$"; done
    ! grep -q '=0\{32\}' out || fail "no secret or no name"
    sed -n '1s/.*\(job=[0-9a-f]* secret=[0-9a-f]*\).*/\1/p' out >>seen
    rm out.* err.*
done
# With a secret of the user's, and at a place of the user's.
job 2 JOB_BOOT=tcp HALAY_SECRET=open-sesame "$JOB_CLIENT" info
sed -n 's/.*\(job=[0-9a-f]* secret=[0-9a-f]*\).*/\1/p' out.0 >>seen
job 2 JOB_BOOT=tcp HALAY_SECRET=open-sesame HALAY_RENDEZVOUS="localhost:$((port + 150))" MASTER_ADDR= \
    TORCHELASTIC_RUN_ID=mine TORCHELASTIC_RESTART_COUNT=1 "$JOB_CLIENT" info
says out.1 "2 ranks on 1 nodes, tcp (torchrun), "
[ "$(sed 's/ |.*//' out.* | sort -u | wc -l)" = 1 ] || fail "two ranks see different jobs"
sed -n 's/.*\(job=[0-9a-f]* secret=[0-9a-f]*\).*/\1/p' out.0 >>seen
[ "$(cut -d' ' -f1 seen | sort -u | wc -l)" = 6 ] || fail "jobs share their names"
[ "$(cut -d' ' -f2 seen | sort -u | wc -l)" = 6 ] || fail "jobs share their secrets"

job 2 JOB_BOOT=tcp "$JOB_CLIENT" children
says err.1 "is that rank already"
says err.1 "was forked from rank 1"

for n in 1 2 4; do
    job $n "$JOB_RANK"
    for ((r = 0; r < n; r++)); do says out.$r "^rank $r of $n, $([ $n = 1 ] && echo alone || echo tcp), "; done
done
# PMIx comes before variables that were left over, but not before torchrun as a task of its launcher.
run env RANK=0 WORLD_SIZE=7 "$HALAYRUN" -np 2 "$JOB_RANK"
expect 0 "halayrun with RANK set"
says out "^rank 1 of 2, meet (halayrun), "
# What a rank itself is told may be another launcher's that it has started: never fewer ranks than that says.
run "$HALAYRUN" -np 2 env RANK=0 WORLD_SIZE=7 "$JOB_RANK"
expect 1 "a rank of halayrun with another WORLD_SIZE"
says err "halayrun announced 2 ranks, but WORLD_SIZE says that there are 7"
run "$HALAYRUN" -np 2 env RANK=0 WORLD_SIZE=1 "$JOB_RANK" briefly
expect 0 "a rank of halayrun with a smaller WORLD_SIZE"
run "$HALAYRUN" -np 1 env RANK=2 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=mine "$JOB_RANK"
says err "RANK is '2': with WORLD_SIZE=2"
# Two jobs at once whose ports overlap: 101 to 116 above 1000 and above 1001.
begin a0 0 2 "$JOB_RANK"
begin b0 0 2 MASTER_PORT=$((port + 1)) "$JOB_RANK"
begin b1 1 2 MASTER_PORT=$((port + 1)) "$JOB_RANK"
begin a1 1 2 "$JOB_RANK"
await
for name in a0 a1 b0 b1; do ended $name 0; done

# Ranks that share processors choose otherwise, all alike; here all have one, as their parent has.
taskset -cp "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" $$ >taskset.out
job 3 HALAY_EXPLAIN=1 "$JOB_RANK"
says err.0 "^  chosen: star: row [0-9]* of the table: .*, all on one node of one processor"

# Once they have met, the only sockets left are the claim on the rank and the one it listens on.
begin 0 0 2 JOB_BOOT=tcp "$JOB_CLIENT" end sleep
begin 1 1 2 JOB_BOOT=tcp "$JOB_CLIENT" end sleep
only_two() {
    for r in 0 1; do
        [ "$(find "/proc/${pids[$r]}/fd" -lname 'socket:*' | wc -l)" = 2 ] || return 1
    done
}
until_true only_two
! listens $((port + 101)) || fail "rank 0 still listens"
{ kill -KILL "${pids[0]}" "${pids[1]}" && await; } 2>/dev/null
nothing_left
