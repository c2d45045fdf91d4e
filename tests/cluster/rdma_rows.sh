#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which transport serves between two emulated machines with Soft-RoCE: verbs; ucx where one of them has
# no plug-in verbs, over RDMA, with nothing set for it; tcp where it has neither. Both ranks say so alike,
# and the device's counters tell whether the bytes moved by RDMA.
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"
bytes=65536

# row TRANSPORT PLUG-IN...: of which node 1 has none
row() {
    local transport=$1 log=$NODE_DIR/$1.$NODE_ID missing
    export HALAY_PLUGIN_DIR=/tmp/$1
    shift
    mkdir "$HALAY_PLUGIN_DIR"
    ln -s "$build"/lib/halay/*.so "$HALAY_PLUGIN_DIR" || fail "no plug-ins"
    for missing; do [ "$NODE_ID" = 0 ] || rm "$HALAY_PLUGIN_DIR/halay-transport-$missing.so"; done
    read_counters before
    "$bench" allreduce --min 8 --max $bytes --factor 8192 --iterations 4 --warmup 1 >"$log" 2>&1 ||
        fail "$transport: exit status $?: $(cat "$log")"
    read_counters after
    grep "between nodes" "$log"
    grep -q "between nodes $transport: row .*${missing:+; not $1: node1 (node 1) has no plug-in $1}" "$log" ||
        fail "node $NODE_ID does not say $transport: $(cat "$log")"
    [ "$NODE_ID" = 1 ] || grep -q "^  between nodes $transport: row" "$log" || fail "it is not explained"
    if [ "$transport" = tcp ]; then
        moved sent_pkts 0 0
    else # 5 calls and 2 checks, with packets of at most 4 KiB
        moved sent_pkts $((7 * bytes / 4096))
        moved rcvd_pkts $((7 * bytes / 4096))
    fi
    "$NODE_BARRIER" "$transport"
}

[ "${1:-}" = machine ] || on_machines rdma_rows.sh
[ -e "$build/lib/halay/halay-transport-ucx.so" ] || skip "transports/ucx was left out of the build"
ranks_are_nodes
unset HALAY_TRANSPORT UCX_IB_GID_INDEX
export HALAY_DEBUG=info HALAY_EXPLAIN=1
row verbs
row ucx verbs
row tcp verbs ucx
