#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts and messages through transports/verbs between two emulated machines with Soft-RoCE: contents,
# latency, bandwidth; what the transport counts is what the formulas say, and what the device counts;
# no receiver was ever not ready. And Halay's own collectives run on it, whose data halay-bench checks.
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"

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

registrations() { # ROUNDS: that node 0's rank makes in so many rounds of calls
    ranks_are_nodes
    HALAY_DEBUG=info "$build/bin/cluster_rank" registered "$1" >"$NODE_DIR/log.$NODE_ID" 2>&1 ||
        fail "registered: $(cat "$NODE_DIR/log.$NODE_ID")"
    "$NODE_BARRIER" "registered$1"
    said registered
}
kept() { # what is registered once is enough for any number of calls
    local few many
    few=$(registrations 2) many=$(registrations 3)
    echo "registrations in 2 and in 3 rounds of calls: $few, $many; puts: $(said puts)"
    [ "${few:-0}" -gt 0 ] || fail "nothing is registered"
    [ "$few" = "$many" ] || fail "registered memory is registered again"
    [ "$(said bounced_bytes)" = 0 ] || fail "registered memory is copied"
}

[ "${1:-}" = machine ] || on_machines verbs.sh
check
collectives
kept
