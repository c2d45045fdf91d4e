#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts through transports/verbs between two emulated machines with Soft-RoCE: contents, latency and
# bandwidth; the device's counters must have moved, and no receiver was ever not ready. Then one side
# is killed, or its network cut, in the middle of puts: the other is told within 10 s.
# Needs $BUILD (the build folder) and rdma-nodes, beside this script or named by $RDMA_NODES.
set -u
folder=$(cd "$(dirname "$0")" && pwd -P)
build=$(cd "${BUILD:?the build folder}" && pwd -P) || exit 1
nodes=${RDMA_NODES:-$folder/rdma-nodes}
put=$build/bin/verbs_put
cache=${HALAY_RDMA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/halay-rdma}
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
        "$NODE_BARRIER" "$mode"
    done
}

if [ "${1:-}" = machine ]; then
    machine
    exit
fi
[ "$(id -u)" = 0 ] || skip "rdma-nodes needs root"
[ -x "$put" ] || skip "there is no verbs_put: transports/verbs was left out of the build"
[ -x "$nodes" ] || skip "there is no rdma-nodes at $nodes"
[ -e "$cache/vmlinuz" ] || skip "no kernel for the machines: run 'rdma-nodes install' once"
exec "$nodes" run --nodes 2 --timeout 200 --share "$folder" --share "$build" -- \
    env BUILD="$build" bash "$folder/verbs.sh" machine
