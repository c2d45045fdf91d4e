#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two machines with two Soft-RoCE devices each, in two networks: both carry what is large, the first one
# alone carries messages; one end with one rail; a rail that dies, or never works, ends the connection,
# and is named; halay-doctor names the same rails; collectives are right; ends
# that do not agree on the rails say so.
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"

second_rail() {
    ip link set eth1 mtu 4500 up
    ip addr add "10.81.0.$((NODE_ID + 1))/24" dev eth1
    rdma link add rxe1 type rxe netdev eth1 || fail "no second device"
    for i in $(seq 100); do
        grep -qs ffff:0a51 /sys/class/infiniband/rxe1/ports/1/gids/1 && return
        sleep 0.1
    done
    fail "no GID of rxe1 after $i tries"
}
turn() { # NAME: a folder of its own, when both are here
    "$NODE_BARRIER" "begin$1"
    export NODE_DIR=$shared/$1
    mkdir -p "$NODE_DIR"
    log=$NODE_DIR/log.$NODE_ID
}
all_counters() { # TAG: when both are here
    "$NODE_BARRIER" "$1${NODE_DIR##*/}"
    for device in rxe0 rxe1; do read_counters "$1"; done
}
carried() { # DEVICE: bytes of puts
    sed -n "s,.*: rail $1/1: put_bytes ,,p" "$log"
}
check() { # contents, and what went where
    local other=$((1 - NODE_ID)) sends
    turn check
    all_counters before
    "$put" contents >"$log" || fail "verbs_put contents: exit status $?: $(cat "$log")"
    grep -E "rails:|rail |counters" "$log"
    all_counters after
    [ "$(said lanes)" = 2 ] || fail "not 2 lanes but $(said lanes)"
    [ $(($(said messages $other) + $(said credits $other) + $(said puts $other) + $(said cut $other))) = \
        "$(said received)" ] || fail "what node $other sent is not what was received"
    sends=$(($(said messages) + $(said credits) + $(said cut)))
    device=rxe0 moved rdma_sends $sends $sends
    device=rxe1 moved rdma_sends 0 0
    for device in rxe0 rxe1; do
        moved send_rnr_err 0 0
        moved sent_pkts $(($(carried $device) / 4096))
    done
    [ "$(carried rxe1)" -ge $(($(said cut) * 500 << 10)) ] || fail "rail 1 did not carry its half"
}
collectives() { # NAME LANES LEAST MOST [VARIABLE]: with bytes of the second rail
    turn "$1"
    all_counters before
    (
        ranks_are_nodes
        export HALAY_DEBUG=info
        env ${5:+"$5"} "$bench" allreduce --min 1M --max 2M --iterations 1 --warmup 0 >"$log" 2>&1
    ) || fail "allreduce: $(cat "$log")"
    grep -E "^ *[0-9]|rails:|rail |between nodes" "$log"
    [ "$2" = 1 ] || grep -q "between nodes verbs: .*; over rxe0/1, rxe1/1$" "$log" || fail "$1: the rails are not said"
    all_counters after
    [ "$(said lanes)" = "$2" ] || fail "$1: not $2 lanes but $(said lanes)"
    device=rxe1 moved sent_pkts "$3" "$4"
}
breaks() { # MODE TEXT [VARIABLE]: both hear of the rail
    turn "$1$((++broken))"
    env ${3:+"$3"} "$put" "$1" >"$log" 2>&1 || fail "verbs_put $1: exit status $?: $(cat "$log")"
    cat "$log"
    { tc qdisc del dev eth1 root; drops_none eth1; } 2>/dev/null
    "$NODE_BARRIER" "broke$broken"
    cat "$NODE_DIR"/log.? | grep -q "$2" || fail "$1: nobody says '$2'"
}
doctor() {
    "$build/bin/halay-doctor" --no-pairs >"$log" 2>&1
    grep -q "rdma.choice *rxe0/1, rxe1/1: " "$log" || fail "the doctor names other rails: $(cat "$log")"
    grep rdma.choice "$log"
}

[ "${1:-}" = machine ] || on_machines verbs_rails.sh --cards 2
shared=$NODE_DIR broken=0
second_rail
check
doctor
collectives two 2 $((1 << 20 >> 12)) 1000000000
[ "$NODE_ID" = 0 ] || fewer=HALAY_VERBS=rails=1
collectives one-end-has-one 1 0 0 ${fewer:+"$fewer"}
breaks refused "refused after .*do not see the same rails between them: [0-9a-f]* and [0-9a-f]*" WRONG_MARK=1
breaks cut "FAILED.* rxe1/1 GID" CARD=eth1
drops_from 300 eth1
DEADLINE_S=4 breaks refused "only small RDMA packets reach .*(\(transport retry counter exceeded\|no answer by the deadline\)).*rxe1/1 GID" HALAY_VERBS=mtu=256
