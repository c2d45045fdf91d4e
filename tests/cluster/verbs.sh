#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts and messages through transports/verbs between two emulated machines with Soft-RoCE: contents,
# latency, bandwidth; what the transport counts is what the formulas say, and what the device counts;
# no receiver was ever not ready. Halay's own collectives run on it, whose data halay-bench checks; and
# each is counted against its plan, with one rank and with two on a machine (docs/rdma.md).
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"
as_the_device_says() { # SENDS: that the transports have counted
    moved rdma_sends "$1" "$1"
    moved rdma_recvs "$(said received)" "$(said received)"
    moved send_rnr_err 0 0
    moved rcvd_rnr_err 0 0
}

# On each machine. Packets have 4 KiB at most.
check() {
    local log=$NODE_DIR/log.$NODE_ID other=$((1 - NODE_ID)) sends
    read_counters before
    "$put" check >"$log" || fail "verbs_put check: exit status $?: $(cat "$log")"
    cat "$log"
    read_counters after
    sends=$(($(said messages) + $(said credits)))
    as_the_device_says $sends
    moved sent_pkts $(($(said put_bytes) / 4096 + sends))
    moved rcvd_pkts $(($(said put_bytes $other) / 4096))
    "$NODE_BARRIER" checked
    [ $(($(said messages $other) + $(said puts $other) + $(said credits $other))) = \
        "$(said received)" ] || fail "what node $other sent is not what was received"
}
collectives() { # puts of up to 8 MiB, the most that Soft-RoCE takes at once, and of more
    local -x NODE_DIR=$NODE_DIR/collectives # a machine may still see a log of before under a name it has read
    mkdir -p "$NODE_DIR"
    ranks_are_nodes
    "$bench" allreduce --min 8 --max 512K --iterations 1 --warmup 1 || fail "allreduce"
    HALAY_ALGORITHM=broadcast=binomial HALAY_DEBUG=info "$bench" broadcast --min 9M --max 9M --iterations 1 --warmup 0 \
        >"$NODE_DIR/log.$NODE_ID" 2>&1 || fail "broadcast: $(cat "$NODE_DIR/log.$NODE_ID")"
    grep -E "^ *[0-9]|counters" "$NODE_DIR/log.$NODE_ID"
    "$NODE_BARRIER" broadcast
    [ $(($(said put_bytes 0) + $(said put_bytes 1))) -gt $((($(said puts 0) + $(said puts 1)) << 23)) ] ||
        fail "no put was of more than 8 MiB"
}
formulas_of() { # RANKS on each machine
    local i pids=()
    local -x NODE_DIR=$NODE_DIR/formulas$1 LOCAL_WORLD_SIZE=$1 GROUP_RANK=$NODE_ID HALAY_DEBUG=info
    mkdir -p "$NODE_DIR"
    ranks_are_nodes
    export WORLD_SIZE=$((2 * $1))
    [ "$1" = 1 ] || export HALAY_TRANSPORT=shm+verbs
    read_counters before
    for ((i = 0; i < $1; i++)); do
        RANK=$((NODE_ID * $1 + i)) LOCAL_RANK=$i "$build/bin/verbs_count" >"$NODE_DIR/out.$NODE_ID.$i" 2>&1 &
        pids+=($!)
    done
    for i in "${!pids[@]}"; do
        wait "${pids[i]}" || fail "verbs_count, $1 ranks a machine: $(cat "$NODE_DIR"/out.*)"
    done
    cat "$NODE_DIR/out.$NODE_ID".* >"$NODE_DIR/log.$NODE_ID"
    grep -E "^\||^rank" "$NODE_DIR/log.$NODE_ID"
    "$NODE_BARRIER" "formulas$1"
    read_counters after
    as_the_device_says $(($(said messages) + $(said credits)))
}

formulas() { # every collective, counted
    formulas_of 1
    formulas_of 2
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

gpus() { # GPUDirect over doubles of CUDA's driver and of dma-bufs: puts from and to memory of a GPU
    local -x NODE_DIR=$NODE_DIR/gpus HALAY_GPUDIRECT=1 HALAY_DEBUG=info
    local -x CUDA_DOUBLE="megabytes=4 delay_us=0 ordered=0"
    local say=(env LD_PRELOAD="$build/double/libverbs_double.so" "$build/bin/verbs_gpu")
    mkdir -p "$NODE_DIR"
    ranks_are_nodes
    HALAY_ALGORITHM=allreduce=ring,broadcast=binomial,allgather=ring "${say[@]}" >"$NODE_DIR/log.$NODE_ID" 2>&1 ||
        fail "verbs_gpu: $(cat "$NODE_DIR/log.$NODE_ID")"
    grep -E "^rank|counters" "$NODE_DIR/log.$NODE_ID"
    "$NODE_BARRIER" gpus
    [ "$(said put_bytes)" -ge $((1 << 20)) ] || fail "a GPU's memory was not put"
    [ "$(said kept)" = "$(said puts)" ] || fail "some puts are not from a GPU's memory"
    [ "$(said bounced_bytes)" = 0 ] || fail "a GPU's memory was copied"
    # Node 1 has no dma-bufs. It says so at once, and node 0, which has, does not wait for it.
    [ "$NODE_ID" = 0 ] || say=("$build/bin/verbs_gpu")
    HALAY_ALGORITHM=allreduce=ring,broadcast=binomial "${say[@]}" >"$NODE_DIR/none.$NODE_ID" 2>&1
    [ $? = 4 ] || fail "one node has no dma-bufs: $(cat "$NODE_DIR/none.$NODE_ID")"
    grep "rank 1 of 2 on node1.*GPUDirect: .*nvidia_peermem" "$NODE_DIR/none.$NODE_ID" ||
        fail "no reason: $(cat "$NODE_DIR/none.$NODE_ID")"
}

[ "${1:-}" = machine ] || on_machines verbs.sh
for part in ${VERBS:-check formulas collectives kept gpus}; do
    $part
    echo "$part: all right, at $SECONDS s"
done
