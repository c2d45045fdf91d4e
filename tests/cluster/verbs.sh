#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts and messages through transports/verbs between two emulated machines with Soft-RoCE: contents,
# latency, bandwidth; what the transport counts is what the formulas say, and what the device counts;
# no receiver was ever not ready. And Halay's own collectives run on it, whose data halay-bench checks.
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"
# shellcheck disable=SC2153 # NODE_ID and NODE_DIR are rdma-nodes'
said() { # COUNTER [NODE]: of the transport
    sed -n "s/.* counters: .*\b$1 \([0-9]*\).*/\1/p" "$NODE_DIR/log.${2:-$NODE_ID}"
}

# On each machine. Packets have 4 KiB at most.
check() {
    local log=$NODE_DIR/log.$NODE_ID other=$((1 - NODE_ID)) sends
    read_counters before
    "$put" check >"$log" || fail "verbs_put check: exit status $?: $(cat "$log")"
    cat "$log"
    read_counters after
    sends=$(($(said messages) + $(said credits)))
    moved rdma_sends $sends $sends
    moved rdma_recvs "$(said received)" "$(said received)"
    moved sent_pkts $(($(said put_bytes) / 4096 + sends))
    moved rcvd_pkts $(($(said put_bytes $other) / 4096))
    moved send_rnr_err 0 0
    moved rcvd_rnr_err 0 0
    "$NODE_BARRIER" checked
    [ $(($(said messages $other) + $(said puts $other) + $(said credits $other))) = \
        "$(said received)" ] || fail "what node $other sent is not what was received"
}
collectives() { # puts of up to 8 MiB, the most that Soft-RoCE takes at once, and of more
    ranks_are_nodes
    "$bench" allreduce --min 8 --max 512K --iterations 1 --warmup 1 || fail "allreduce"
    "$bench" allreduce --min 32M --max 32M --iterations 1 --warmup 0 || fail "allreduce"
}

[ "${1:-}" = machine ] || on_machines verbs.sh
check
collectives
