#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What goes wrong with transports/verbs between two emulated machines with Soft-RoCE: a peer is killed
# or cut off in the middle of puts, memory is taken back, GIDs and packets lead nowhere, memory may not
# be locked, a port is down. Each ends with an error that says what to do, or goes on in another way.
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"

# TEXT: what one of them says, at least; who hears it second may hear that the first has ended.
both() { # MODE [TEXT]: verbs_put on both machines, in a folder of their own
    local mode=$1 status
    export NODE_DIR=$shared/$1$((++turn))
    mkdir -p "$NODE_DIR"
    "$put" "$mode" >"$NODE_DIR/out.$NODE_ID" 2>&1
    status=$?
    cat "$NODE_DIR/out.$NODE_ID"
    [ "$status" = 0 ] || [ "$status-$NODE_ID-${mode%-*}" = 137-1-kill ] ||
        fail "verbs_put $*: exit status $status"
    tc qdisc del dev eth0 root 2>/dev/null # the network is whole again
    "$NODE_BARRIER" "turn$turn"
    [ -z "${2:-}" ] || cat "$NODE_DIR"/out.? | grep -q "refused after .*$2" || fail "nobody says '$2'"
}
opens_not() { # TEXT COMMAND...: opening is refused, with this and a remedy in the message
    local text=$1
    shift
    "$@" "$put" open >"$NODE_DIR/out.$NODE_ID" 2>&1 && fail "it opens: $*"
    cat "$NODE_DIR/out.$NODE_ID"
    grep -q "log 0: verbs: .*$text.*HALAY_TRANSPORT=shm+tcp" "$NODE_DIR/out.$NODE_ID" || fail "$text"
}
locks() { # BYTES COMMAND...: that locks no more
    local bytes=$1
    shift
    prlimit --memlock="$bytes" setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@"
}
third_gid() { # a second address of eth0, whose GID is the third
    local i
    ip addr add "10.8$1.0.$((NODE_ID + 1))/24" dev eth0
    for i in $(seq 100); do
        grep -q "ffff:0a5" /sys/class/infiniband/rxe0/ports/1/gids/2 && return
        sleep 0.1
    done
    fail "no third GID after $i tries"
}
deaths() {
    both late
    both under
    both kill-target
    both kill-source
    both cut
    both given-up
}
late_rank() { # one that calls when the other has given up, whose memory stays registered
    ranks_are_nodes
    HALAY_DEBUG=info "$build/bin/cluster_rank" late >"$NODE_DIR/late.$NODE_ID" 2>&1
    [ $? = 4 ] || fail "late: $(cat "$NODE_DIR/late.$NODE_ID")"
    grep -hE "told|counters|lost" "$NODE_DIR/late.$NODE_ID"
    "$NODE_BARRIER" late_rank
}
networks() {
    HALAY_VERBS=gid=$NODE_ID both refused "no GID of rxe0/1 leads to"
    third_gid 0
    ip neigh replace "10.80.0.$((2 - NODE_ID))" lladdr 02:00:00:00:00:99 dev eth0
    HALAY_VERBS=gid=2 both refused "no RDMA packet reaches .*rxe0/1 GID 2 ::ffff:10.80.*gid=INDEX"
    tc qdisc add dev eth0 root tbf rate 1gbit burst 2000 latency 100ms # drops what is larger
    both refused "only small RDMA packets reach .*MTU 4096 of 4096 and 4096.*mtu=1024"
    tc qdisc add dev eth0 root tbf rate 1gbit burst 2000 latency 100ms
    HALAY_VERBS=mtu=1024 both late
}
job_dies() { # a rank of a job is killed in the middle of its calls, over what is chosen by itself
    ranks_are_nodes
    unset HALAY_TRANSPORT
    if [ "$NODE_ID" = 1 ]; then
        timeout -s KILL 15 "$build/bin/cluster_rank" loop
        [ $? = 137 ] || fail "it was not killed"
    else
        HALAY_DEBUG=info "$build/bin/cluster_rank" loop >"$NODE_DIR/loop" 2>&1
        [ $? = 4 ] || fail "loop: $(cat "$NODE_DIR/loop")"
        grep -E "transport verbs|took|told|counters" "$NODE_DIR/loop"
        grep -q "told .* about rank 1 " "$NODE_DIR/loop" || fail "not told: $(cat "$NODE_DIR/loop")"
        [ "$(sed -n 's/.*call that failed took \([0-9]*\) ms/\1/p' "$NODE_DIR/loop")" -lt 15000 ] ||
            fail "told too late"
        grep -q "transport verbs" "$NODE_DIR/loop" || fail "verbs was not chosen"
    fi
    "$NODE_BARRIER" job
}
limits() {
    opens_not "locked memory (ulimit -l) is 64 KiB, and [0-9]* KiB are needed" locks 65536
    opens_not "rxe0/1 has no such GID" env HALAY_VERBS=gid=77
    opens_not "none has the name" env HALAY_VERBS=device=mlx9
    ip link set eth0 down
    opens_not "rxe0/1 is down" env
    ip link set eth0 up
    HALAY_VERBS=mtu=1500 "$put" open | grep -q "'mtu=1500' is not understood" || fail "mtu=1500"
    "$NODE_BARRIER" up
    ranks_are_nodes
    # Node 1 can register no large buffer, neither once nor for a call: its puts bounce, and what it
    # gets comes in messages.
    locks $((NODE_ID ? 3 << 20 : 1 << 30)) "$bench" allreduce --registered --min 4M --max 4M \
        --iterations 1 --warmup 1 >"$NODE_DIR/bench.$NODE_ID" 2>&1 || fail "allreduce: $(cat "$NODE_DIR/bench.$NODE_ID")"
    cat "$NODE_DIR/bench.$NODE_ID"
    [ "$NODE_ID" = 0 ] || [ "$(grep -c "cannot be registered" "$NODE_DIR/bench.1")" = 2 ] ||
        fail "the fall-back was not said, or too often"
}

[ "${1:-}" = machine ] || on_machines verbs_faults.sh
shared=$NODE_DIR turn=0
deaths
job_dies
late_rank
networks
limits
