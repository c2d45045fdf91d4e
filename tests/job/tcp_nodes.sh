#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three nodes, which are network namespaces of this machine: uneven ranks, dealt out; a route that drops
# all packets. Skipped where namespaces cannot be made.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"
net=hly$mark
net=${net:0:10}
trap 'for i in 0 1 2 s; do ip netns del $net-$i; done 2>/dev/null; rm -rf "$here"' EXIT

# A bridge in a namespace of its own, so that nothing of the machine's network is touched.
nodes() {
    ip netns add "$net-s" && ip -n "$net-s" link add sw type bridge && ip -n "$net-s" link set sw up || return 1
    for i in 0 1 2; do
        ip netns add "$net-$i" &&
            ip -n "$net-s" link add p$i type veth peer name eth0 netns "$net-$i" &&
            ip -n "$net-s" link set p$i master sw up &&
            ip -n "$net-$i" addr add 10.77.0.1$i/24 dev eth0 &&
            ip -n "$net-$i" link set eth0 up && ip -n "$net-$i" link set lo up || return 1
    done
}
nodes 2>why || { echo "skipped: no network namespaces here: $(tail -1 why)" && exit 77; }

# on NODE NAME RANK SIZE [VARIABLE=VALUE...] COMMAND...
on() { begin "${@:2:3}" MASTER_ADDR=10.77.0.10 ip netns exec "$net-$1" env "${@:5}"; }

node_of=(0 1 1 2 0 1 2) # rank 0's address is that of node 0
for r in {0..6}; do on "${node_of[r]}" "$r" "$r" 7 JOB_BOOT=tcp "$JOB_CLIENT" info; done
await
for r in {0..6}; do ended "$r" 0; done
[ "$(sed 's/ |.*//' out.? | sort -u | wc -l)" = 1 ] || fail "the ranks see different jobs"
h=$(hostname)
places=
for r in {0..6}; do places+=" $r@${node_of[r]}:$h=10.77.0.1${node_of[r]}/[1-9][0-9]*"; done
says out.0 "^7 ranks on 3 nodes, tcp, .*$places | rank 0 local 0 of 2 node 0$"
says out.5 "| rank 5 local 2 of 3 node 1$"
says out.6 "| rank 6 local 1 of 2 node 2$"

# Two nodes that claim the same rank do not see one another's claim; rank 0 does.
on 0 0 0 4 "$JOB_RANK"
on 2 2 2 4 "$JOB_RANK"
for i in 1 2; do on $i same$i 1 4 "$JOB_RANK"; done
wait "${pids[same1]}"
on 2 3 3 4 "$JOB_RANK"
await
for name in 0 2 same1 same2 3; do ended $name 1 "two processes are the same rank: rank 1 (pid [0-9]* on $h)"; done

# Nothing gets through to node 0 or back from it: by the deadline.
export HALAY_DEADLINE=3
ip -n "$net-s" link set p0 nomaster
start=$(date +%s%3N)
on 0 0 0 2 "$JOB_RANK"
on 1 1 1 2 "$JOB_RANK"
await
ms=$(($(date +%s%3N) - start))
within 5000
ended 0 1 "1 of the 2 ranks did not come"
ended 1 1 "found no rendezvous of rank 0 at '10.77.0.10'"
nothing_left
