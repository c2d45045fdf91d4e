#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which transport serves between two emulated machines with Soft-RoCE: verbs; ucx where one of them has
# no plug-in verbs, over RDMA, with nothing set for it; tcp where it has neither. Both ranks say so alike,
# and the device's counters tell whether the bytes moved by RDMA. And ucx where memory cannot be
# registered, or not be locked.
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

ucx() { # NAME COMMAND...: the same over ucx, which was asked for, under a command on node 1
    local log=$NODE_DIR/ucx.$1.$NODE_ID
    [ "$NODE_ID" = 0 ] && set -- "$1" env
    read_counters before
    HALAY_TRANSPORT=ucx "${@:2}" "$bench" allreduce --min 8 --max $bytes --factor 8192 --iterations 4 --warmup 1 >"$log" 2>&1 ||
        fail "ucx, $*: exit status $?: $(cat "$log")"
    read_counters after
    "$NODE_BARRIER" "ucx.$1"
}
# UCX tries again, and the job is well.
registrations_fail() {
    local n total nomr=(env LD_PRELOAD="$build/lib/libucx_nomr_preload.so")
    ucx counted "${nomr[@]}"
    total=$(sed -n 's/^registrations: //p' "$NODE_DIR/ucx.counted.1")
    [ "${total:-0}" -ge 3 ] || fail "${total:-no} registrations were seen"
    for n in 1 $((total - 1)); do
        ucx "fails$n" "${nomr[@]}" NOMR_AT="$n" NOMR_TIMES=2
        [ "$NODE_ID" = 0 ] || grep -qx "failed: 2" "$NODE_DIR/ucx.fails$n.1" || fail "none has failed"
    done
}
# It would never come back from one of its calls.
not_locked() {
    ucx locks locks 65536
    grep "locked" "$NODE_DIR/ucx.locks.1"
    [ "$(grep -c "ucx: this rank uses TCP, not RDMA: .* is 64 KiB" "$NODE_DIR/ucx.locks.1")" = 1 ] ||
        fail "the fall-back is not said: $(cat "$NODE_DIR/ucx.locks.1")"
    moved sent_pkts 0 0
}

[ "${1:-}" = machine ] || on_machines rdma_rows.sh
[ -e "$build/lib/halay/halay-transport-ucx.so" ] || skip "transports/ucx was left out of the build"
ranks_are_nodes
unset HALAY_TRANSPORT UCX_IB_GID_INDEX
export HALAY_DEBUG=info HALAY_EXPLAIN=1
row verbs
row ucx verbs
row tcp verbs ucx
unset HALAY_PLUGIN_DIR HALAY_EXPLAIN
registrations_fail
not_locked
