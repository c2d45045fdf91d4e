#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two machines with two Soft-RoCE devices each, in two networks: both carry what is large, the first one
# alone carries messages; one end with one rail; a rail that dies, or never works, ends the connection,
# and is named; halay-doctor names the same rails; collectives are right.
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"

second_rail() {
    ip link set eth1 mtu 4500 up && ip addr add "10.81.0.$((NODE_ID + 1))/24" dev eth1 &&
        rdma link add rxe1 type rxe netdev eth1 || fail "no second device"
    for i in $(seq 100); do
        grep -qs ffff:0a51 /sys/class/infiniband/rxe1/ports/1/gids/1 && return
        sleep 0.1
    done
    fail "no GID of rxe1 after $i tries"
}
all_counters() { # TAG
    for device in rxe0 rxe1; do read_counters "$1"; done
}
turn() { # NAME: a folder of its own, when both are here
    "$NODE_BARRIER" "begin$1"
    export NODE_DIR=$shared/$1
    mkdir -p "$NODE_DIR"
    log=$NODE_DIR/log.$NODE_ID
}
check() { # NAME LANES [VARIABLE...]: verbs_put, and where its bytes went
    local other=$((1 - NODE_ID)) sends rails
    turn "$1"
    all_counters before
    env "${@:3}" "$put" check >"$log" || fail "$1: verbs_put check: exit status $?: $(cat "$log")"
    grep -E "rails:|rail |counters|MB/s" "$log"
    all_counters after
    "$NODE_BARRIER" "checked$1"
    [ "$(said lanes)" = "$2" ] || fail "$1: not $2 lanes but $(said lanes)"
    [ $(($(said messages $other) + $(said credits $other) + $(said puts $other) + ($2 - 1) * $(said cut $other))) = \
        "$(said received)" ] || fail "$1: what node $other sent is not what was received"
    sends=$(($(said messages) + $(said credits) + ($2 > 1 ? $(said cut) : 0)))
    device=rxe0 moved rdma_sends $sends $sends
    for device in rxe0 rxe1; do
        moved send_rnr_err 0 0
        rails=$(sed -n "s,.*: rail $device/1: put_bytes ,,p" "$log")
        [ "$2-$device" != 1-rxe1 ] || rails=0
        [ -z "$rails" ] || moved sent_pkts $((rails / 4096))
    done
    device=rxe1
    moved rdma_sends 0 0
    [ "$2" = 1 ] || [ "$rails" -ge $(($(said cut) * 512 << 10)) ] || fail "$1: rail 1 did not carry its half"
    [ "$2" = 2 ] || moved sent_pkts 0 0
}
breaks() { # MODE TEXT [VARIABLE...]: both hear of the rail
    turn "$1"
    env "${@:3}" "$put" "$1" >"$log" 2>&1 || fail "verbs_put $1: exit status $?: $(cat "$log")"
    cat "$log"
    tc qdisc del dev eth1 root 2>/dev/null
    "$NODE_BARRIER" "broke$1"
    cat "$NODE_DIR"/log.? | grep -q "$2" || fail "$1: nobody says '$2'"
}
doctor() {
    "$build/bin/halay-doctor" --no-pairs >"$log" 2>&1
    grep rdma.choice "$log"
    grep -q "rdma.choice *rxe0/1, rxe1/1: " "$log" || fail "the doctor names other rails: $(cat "$log")"
}
collectives() {
    turn collectives
    ranks_are_nodes
    HALAY_DEBUG=info "$bench" allreduce --min 512 --max 4M --iterations 1 --warmup 0 >"$log" 2>&1 ||
        fail "allreduce: $(cat "$log")"
    grep -E "^ *[0-9]|rails:|rail " "$log"
    grep -q "rail rxe1/1: put_bytes [1-9]" "$log" || fail "the second rail carried nothing: $(cat "$log")"
}

[ "${1:-}" = machine ] || on_machines verbs_rails.sh --cards 2
shared=$NODE_DIR
second_rail
check two 2
[ "$NODE_ID" = 0 ] || one=HALAY_VERBS=device=rxe0
check one-end-has-one 1 ${one:+"$one"}
[ "$NODE_ID" = 0 ] || one=HALAY_VERBS=rails=1
check one-is-wanted 1 ${one:+"$one"}
collectives
breaks cut "FAILED.* rxe1/1 GID" CARD=eth1
tc qdisc add dev eth1 root tbf rate 1gbit burst 2000 latency 100ms # drops what is larger
breaks refused "only small RDMA packets reach .*rxe1/1 GID.*mtu=1024"
doctor
