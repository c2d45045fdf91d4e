# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of transports/verbs on two emulated machines share. A test that is started with
# `machine` is on one of them; else it starts itself there. Needs $BUILD, the build folder.
set -u
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(cd "${BUILD:?the build folder}" && pwd -P) || exit 1
put=$build/bin/verbs_put
# shellcheck disable=SC2034 # the tests use it
bench=$build/bin/halay-bench

skip() { echo "skipped: $*" && exit 77; }
fail() {
    echo "FAILED: $*" >&2
    [ -z "${NODE_ID:-}" ] || link_state >&2
    exit 1
}
link_state() { # a link that stood still has to be explained by this
    echo "at $EPOCHSECONDS, load $(</proc/loadavg)"
    ip -s link show eth0
    tc -s qdisc show dev eth0
    ip neigh
    rdma statistic show link rxe0/1
    cat /proc/net/softnet_stat
    dmesg | tail -n 10
}
on_machines() { # TEST [OPTION...]: instead of this shell
    local why
    [ -x "$put" ] || skip "there is no verbs_put: transports/verbs was left out of the build"
    why=$("$folder/rdma-nodes" check) || skip "$why"
    exec "$folder/rdma-nodes" run --nodes 2 --timeout 270 "${@:2}" --share "$folder" --share "$build" -- \
        env BUILD="$build" bash "$folder/$1" machine
}
locks() { # BYTES COMMAND...: that locks no more
    local bytes=$1
    shift
    prlimit --memlock="$bytes" setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@"
}
# Where they come in: what is refused where it is sent, Soft-RoCE tries again at once and for ever, in
# interrupts, and a slow machine does nothing else.
drops_from() { # BYTES CARD: what is larger does not come in
    tc qdisc add dev "$2" ingress &&
        tc filter add dev "$2" ingress matchall action police rate 10gbit burst 1m mtu "$1" conform-exceed drop/ok
}
drops_none() { # CARD
    tc qdisc del dev "$1" ingress
}
device=rxe0 # whose counters they are
# What follows starts no programs: on these machines each takes a quarter of a second and more.
# shellcheck disable=SC2153 # NODE_ID and the others are rdma-nodes'
read_counters() { # TAG: into the folder that both machines share
    local file value
    for file in "/sys/class/infiniband/$device/ports/1/hw_counters"/*; do
        read -r value <"$file" && echo "${file##*/}:$value"
    done >"$NODE_DIR/$1.$device.$NODE_ID"
}
value_of() { # COUNTER TAG -> $value
    local line
    while read -r line; do
        if [ "${line%%:*}" = "$1" ]; then value=${line#*:} && return; fi
    done <"$NODE_DIR/$2.$device.$NODE_ID"
    fail "$device has no counter $1"
}
moved() { # COUNTER LEAST [MOST]
    local before value
    value_of "$1" before
    before=$value
    value_of "$1" after
    echo "$device: $1: $before -> $value, at least $2, at most ${3:-any}"
    [ $((value - before)) -ge "$2" ] || fail "$device: $1 did not move by $2"
    [ $((value - before)) -le "${3:-1000000000}" ] || fail "$device: $1 moved by more than $3"
}
said() { # COUNTER [NODE]: of the transports of all ranks there
    local line n=0
    while read -r line; do
        [[ "$line" =~ " counters: "(.*[^a-z_])?"$1 "([0-9]+) ]] && n=$((n + BASH_REMATCH[2]))
    done <"$NODE_DIR/log.${2:-$NODE_ID}"
    echo $n
}
ranks_are_nodes() { # a job of two ranks, over variables
    export RANK=$NODE_ID WORLD_SIZE=$NODES MASTER_ADDR=${NODE_ADDRS%% *} MASTER_PORT=29500
    export HALAY_TRANSPORT=verbs HALAY_DEADLINE=100
}
