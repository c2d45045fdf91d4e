#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay-doctor on four nodes: every pair is timed. Then two of them do not reach each other, and one has
# another MTU and a third a slow link: the pair is named with its hosts, all others are timed, and the
# differences are told.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_nodes 4

# job PORT ARGUMENTS...: a rank on each node; $status is rank 0's
job() {
    local i pids=()
    for i in 0 1 2 3; do
        on $((i + 1)) timeout -k 5 150 env RANK=$i WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$i \
            MASTER_ADDR=10.78.0.1 MASTER_PORT="$1" "$build/bin/halay-doctor" "${@:2}" >out.$i 2>err.$i </dev/null &
        pids+=($!)
    done
    for i in 3 2 1; do wait "${pids[i]}" || fail "rank $i: exit status $?"; done
    wait "${pids[0]}"
    status=$?
    cat out.? >out
    cat err.? >err
}

job 29400
expect 0 "four healthy nodes"
says out "^ok *pairs.reach *all 6 pairs reach each other$"
says out "^pairs: 6 between nodes over tcp$"
counts out 1 "^warning *rdma.device\|^ok *rdma.choice" # once for all hosts
! grep -E '^ +[0-3] v[1-4] .*(FAILED|\?)' out || fail "not all pairs were timed"
counts out 8 "^ *[0-3] v[1-4] .* - *\|^ *[0-3] v[1-4] .* -$"

on 2 ip route add blackhole 10.78.0.3/32 || fail "no route can be made on node 2"
on 3 ip link set eth0 mtu 1400 || fail "the MTU of node 3 cannot be changed"
veth shape 4 10mbit 64kb 100ms || fail "the link of node 4 cannot be made slow"
job 29500 --seconds 8
expect 1 "a pair that does not reach each other"
counts out 1 "^error *pairs.reach"
says out "^error *pairs.reach *v2 - v3: ranks 1 and 2 do not reach each other over tcp: "
says out "do:  on v2: ping v3; firewalls; routes; HALAY_INTERFACE$"
says out "^warning *hosts.differ *the interface's MTU: 1500 on v1, 1400 on v3; not as the first: 1 of 4$"
for n in 1 2 3; do says out "^warning *pairs.slow *v$n - v4: .* and [0-3] MB/s; the better quarter of "; done
says out "^ *1 v2 *[0-9.]* *- *FAILED *[0-9.]*$"
says out "^ *3 v4 *[0-9.]* *[0-9.]* *[0-9.]* *-$"
cat out
nothing_left 4
