# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests on two network namespaces share: they are $net-1 and $net-2, and go with the test.
# shellcheck source-path=SCRIPTDIR source=lib.sh
[ -n "${here:-}" ] || . "$(dirname "$0")/lib.sh"
net=hly$mark
net=${net:0:10}
trap 'for i in 1 2; do ip netns del $net-$i; done 2>/dev/null; rm -rf "$here"' EXIT

# wire NETWORK: makes them, with a wire between; eth0 is at NETWORK.11 and NETWORK.12.
wire() {
    network=$1
    ip netns add "$net-1" && ip netns add "$net-2" &&
        ip -n "$net-1" link add eth0 type veth peer name eth0 netns "$net-2" || return 1
    for i in 1 2; do
        ip -n "$net-$i" addr add "$1.1$i/24" dev eth0 && ip -n "$net-$i" link set eth0 up &&
            ip -n "$net-$i" link set lo up || return 1
    done
}

# begin_all COMMAND...: with tcp_lib.sh's begin, ranks 0 and 1 on node 1, 2 and 3 on node 2; $first of $ranks on node 1.
ranks=4 first=2
begin_all() {
    local r
    for ((r = 0; r < ranks; r++)); do
        begin $r $r $ranks MASTER_ADDR="$network.11" ip netns exec "$net-$((r < first ? 1 : 2))" "$@"
    done
}
