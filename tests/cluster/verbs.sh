#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts through transports/verbs between two emulated machines with Soft-RoCE: contents, latency and
# bandwidth; the device's counters must have moved, and no receiver was ever not ready. Then one side
# is killed, or its network cut, in the middle of puts: the other is told within 10 s. And Halay's own
# collectives run on it, whose data halay-bench checks. Needs $BUILD, the build folder.
set -u
folder=$(cd "$(dirname "$0")" && pwd -P)
build=$(cd "${BUILD:?the build folder}" && pwd -P) || exit 1
put=$build/bin/verbs_put
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters

skip() { echo "skipped: $*" && exit 77; }
fail() { echo "FAILED: $*" >&2 && exit 1; }

# shellcheck disable=SC2153 # NODE_ID and NODE_DIR are rdma-nodes'
read_counters() { # TAG: into the folder that both machines share
    echo "counters $1: $(rdma statistic show link rxe0/1)"
    (cd $counters && grep . -- *) >"$NODE_DIR/$1.$NODE_ID"
}
moved() { # COUNTER LEAST [MOST]
    local before after
    before=$(sed -n "s/^$1://p" "$NODE_DIR/before.$NODE_ID")
    after=$(sed -n "s/^$1://p" "$NODE_DIR/after.$NODE_ID")
    echo "$1: $before -> $after"
    [ $((after - before)) -ge "$2" ] || fail "$1 did not move by $2"
    [ $((after - before)) -le "${3:-1000000000}" ] || fail "$1 moved by more than $3"
}

# On each machine. Node 0 puts a MiB 42 times, in packets of 4 KiB at most; acknowledgements come back.
machine() {
    local mode status
    shared=$NODE_DIR
    for mode in check kill-target kill-source cut; do
        NODE_DIR=$shared/$mode
        mkdir -p "$NODE_DIR"
        [ $mode = check ] && read_counters before
        "$put" $mode
        status=$?
        [ "$status" = 0 ] || [ "$status-$NODE_ID-${mode%-*}" = 137-1-kill ] ||
            fail "verbs_put $mode: exit status $status"
        if [ $mode = check ]; then
            read_counters after
            moved sent_pkts 1000
            moved rcvd_pkts 1000
            moved rdma_sends 400
            moved rdma_recvs 800 # messages and immediates
            moved send_rnr_err 0 0
            moved rcvd_rnr_err 0 0
        fi
        tc qdisc del dev eth0 root 2>/dev/null # the network is whole again
        "$NODE_BARRIER" "$mode"
    done
}
collectives() { # over variables; puts of up to 8 MiB, the most that Soft-RoCE takes at once, and of more
    export RANK=$NODE_ID WORLD_SIZE=$NODES MASTER_ADDR=${NODE_ADDRS%% *} MASTER_PORT=29500
    export HALAY_TRANSPORT=verbs HALAY_DEADLINE=60
    "$build/bin/halay-bench" allreduce --min 8 --max 32K --iterations 2 --warmup 1 || fail "allreduce"
    "$build/bin/halay-bench" allreduce --min 8M --max 32M --iterations 1 --warmup 1 || fail "allreduce"
}

if [ "${1:-}" = machine ]; then
    machine
    collectives
    exit
fi
[ -x "$put" ] || skip "there is no verbs_put: transports/verbs was left out of the build"
why=$("$folder/rdma-nodes" check) || skip "$why"
exec "$folder/rdma-nodes" run --nodes 2 --timeout 270 --share "$folder" --share "$build" -- \
    env BUILD="$build" bash "$folder/verbs.sh" machine
