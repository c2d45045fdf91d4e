#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What goes wrong with transports/verbs between two emulated machines with Soft-RoCE: a peer is killed
# or cut off in the middle of puts, memory is taken back, GIDs and packets lead nowhere, memory may not
# be locked, a port is down, packets stay before a card. Each ends with an error that says what to do,
# or goes on in another way.
# shellcheck source-path=SCRIPTDIR source=verbs_lib.sh
. "$(dirname "$0")/verbs_lib.sh"

# TEXT: what one of them says, at least; who hears it second may hear that the first has ended.
both() { # MODE [TEXT]: verbs_put on both machines, in a folder of their own
    local mode=$1 status
    export NODE_DIR=$shared/$1$((++turn))
    mkdir -p "$NODE_DIR"
    "$put" "$mode" >"$NODE_DIR/out.$NODE_ID" 2>&1
    status=$?
    cat "$NODE_DIR/out.$NODE_ID"
    [ "$status" = 0 ] || [ "$status-$NODE_ID-${mode%-*}" = 137-1-kill ] ||
        fail "verbs_put $*: exit status $status"
    { tc qdisc del dev eth0 root; drops_none eth0; } 2>/dev/null # the network is whole again
    "$NODE_BARRIER" "turn$turn"
    [ -z "${2:-}" ] || cat "$NODE_DIR"/out.? | grep -q "refused after .*$2" || fail "nobody says '$2'"
}
opens_not() { # TEXT COMMAND...: opening is refused, with this and a remedy in the message
    local text=$1
    shift
    "$@" "$put" open >"$NODE_DIR/out.$NODE_ID" 2>&1 && fail "it opens: $*"
    cat "$NODE_DIR/out.$NODE_ID"
    grep -q "log 0: verbs: .*$text.*HALAY_TRANSPORT=shm+tcp" "$NODE_DIR/out.$NODE_ID" || fail "$text"
}
third_gid() { # a second address of eth0, whose GID is the third
    local i
    ip addr add "10.8$1.0.$((NODE_ID + 1))/24" dev eth0
    for i in $(seq 100); do
        grep -q "ffff:0a5" /sys/class/infiniband/rxe0/ports/1/gids/2 && return
        sleep 0.1
    done
    fail "no third GID after $i tries"
}
deaths() {
    both late
    both under
    both kill-target
    both kill-source
    both cut
    HALAY_VERBS=mtu=256 both given-up
}
late_rank() { # one that calls when the other has given up, whose memory stays registered
    ranks_are_nodes
    HALAY_DEBUG=info "$build/bin/cluster_rank" late >"$NODE_DIR/late.$NODE_ID" 2>&1
    [ $? = 4 ] || fail "late: $(cat "$NODE_DIR/late.$NODE_ID")"
    grep -hE "told|counters|lost" "$NODE_DIR/late.$NODE_ID"
    "$NODE_BARRIER" late_rank
}
networks() {
    HALAY_VERBS=gid=$NODE_ID both refused "no GID of rxe0/1 leads to"
    third_gid 0
    ip neigh replace "10.80.0.$((2 - NODE_ID))" lladdr 02:00:00:00:00:99 dev eth0
    HALAY_VERBS=gid=2 both refused "no RDMA packet reaches .*rxe0/1 GID 2 ::ffff:10.80.*gid=INDEX"
    drops_from 300 eth0
    ip route change 10.79.0.0/24 dev eth0 src "10.79.0.$((NODE_ID + 1))" advmss 200 # TCP's are smaller
    HALAY_VERBS=mtu=256 DEADLINE_S=4 both refused \
        "only small RDMA packets reach .*(\(transport retry counter exceeded\|no answer by the deadline\)).*MTU 256 .*a filter"
    drops_from 2000 eth0
    HALAY_VERBS=mtu=1024 both late
}
# A job of one rank on each machine, over what is chosen by itself; its words are in $NODE_DIR/out.*,
# its exit status in $status.
job() { # NAME COMMAND...: cluster_rank's
    export NODE_DIR=$shared/$1
    mkdir -p "$NODE_DIR"
    ranks_are_nodes
    unset HALAY_TRANSPORT
    HALAY_DEADLINE=${deadline:-30} HALAY_DEBUG=info timeout -s KILL 120 "$build/bin/cluster_rank" "${@:2}" \
        >"$NODE_DIR/out.$NODE_ID" 2>&1
    status=$?
    grep -vE "plan|listens" "$NODE_DIR/out.$NODE_ID"
}
await() { # until a COMMAND succeeds
    local i
    for i in $(seq 200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "never so after $i tries: $*"
}
says() { # TEXT: this machine's rank
    grep -q -- "$1" "$NODE_DIR/out.$NODE_ID" || fail "rank $NODE_ID does not say: $1"
}
in_time() { # MS: that the call that failed took, at most
    [ "$(sed -n 's/.*call that failed took \([0-9]*\) ms/\1/p' "$NODE_DIR/out.$NODE_ID")" -lt "$1" ] ||
        fail "told too late"
}

# The network's faults; a job goes on, or ends with an error by the deadline.
netem() { # NAME SECONDS DISCIPLINE...
    tc qdisc add dev eth0 root netem "${@:3}"
    job "$1" steady "$2"
    "$NODE_BARRIER" "$1"
    tc qdisc del dev eth0 root
    rdma statistic show link rxe0/1 | tr ',' '\n' | grep -E "retry|rnr|retrans" | xargs
    [ "$status" = 4 ] && in_time 35000
    case $status in 0 | 4) ;; *) fail "netem ${*:3}: exit status $status" ;; esac
}
lossy() { # long: FAULTS=lossy
    netem delay20ms 6 delay 20ms
    [ "$status" = 0 ] || fail "20 ms are too much"
    netem loss2 20 loss 2%
    [ "$status" = 0 ] || fail "a loss of 2 % is too much"
    netem loss20 30 loss 20%
}
when_looping() { # NODE COMMAND...: once the rank of that machine, in the folder $2, is in its calls
    await grep looping "$shared/$2/out.$1" && "${@:3}"
}
calls_node0() { # its card takes note of what it has sent when something comes
    (: <>"/dev/tcp/${NODE_ADDRS%% *}/1") 2>/dev/null
}
# Of node 1, in the middle of a job's puts, until both ranks are told. What a card that is down, or a
# queue before it, keeps of a queue pair's packets, the kernel awaits for 50 s before it destroys that
# one, also where the process ends; then it crashes when they go.
cut_off() { # NAME CUT JOIN
    [ "$NODE_ID" = 0 ] || when_looping 1 "$1" eval "sleep 1; $2
        await grep -s told $shared/$1/out.0; await grep -s told $shared/$1/out.1; $3; calls_node0" &
    job "$1" steady 60
    wait
    [ "$status" = 4 ] || fail "$1: exit status $status"
    in_time 15000
    "$NODE_BARRIER" "$1"
}
link_down() {
    cut_off link_down "ip link set eth0 down" "ip link set eth0 up"
    says "told .* about rank $((1 - NODE_ID)) .*rxe0/1 GID .* to rxe0/1 GID"
    # The device's event, the queue pair's error and the port's state come in any order.
    [ "$NODE_ID" = 0 ] || says "rxe0/1: port error: .*ip link\|this end's port .*ip link"
}
held() { # packets stay before the card, and with them queue pairs
    cut_off held "tc qdisc add dev eth0 root tbf rate 8bit burst 5000 limit 1000000" \
        "sleep 8; tc qdisc del dev eth0 root"
    [ "$NODE_ID" = 0 ] || says "the driver does not let go of queue pairs"
}
ports_tell() { # FILE: at which a rank on this machine listens
    ss -Htlnp | sed -n 's/.*:\([0-9]*\) .*cluster_rank.*/\1/p' >"$1.new" && mv "$1.new" "$1"
}
nonsense() { # FILE: at each of these ports of node 0, for 1 s; on one connection more nothing
    local port where=/dev/tcp/${NODE_ADDRS%% *}
    await test -e "$1"
    while read -r port; do
        # shellcheck disable=SC2034 # stays open
        exec {silent}<>"$where/$port" {loud}<>"$where/$port"
        head -c 4000 /dev/urandom >&"$loud"
    done <"$1"
    sleep 1
}
stranger() { # calls node 0's rank, and talks nonsense, or nothing
    local here=$shared/stranger
    mkdir -p "$here"
    if [ "$NODE_ID" = 0 ]; then
        when_looping 0 stranger ports_tell "$here/ports" &
    else
        { nonsense "$here/ports" && : >"$here/enough"; } &
    fi
    job stranger steady 60 "$here/enough"
    wait
    [ "$status" = 0 ] || fail "a stranger: exit status $status"
    [ "$NODE_ID" = 1 ] || says "connected to .* and was dropped"
    "$NODE_BARRIER" stranger_gone
}
no_device() { # on node 1: by name it is an error there, by itself all goes over TCP
    [ "$NODE_ID" = 0 ] || rdma link delete rxe0
    [ "$NODE_ID" = 0 ] || opens_not "no RDMA device that a program may use" env
    "$NODE_BARRIER" deleted
    job no_device steady 1
    [ "$status" = 0 ] || fail "no device: exit status $status"
    says "over tcp"
    [ "$NODE_ID" = 1 ] || says "no RDMA between nodes.*node 1 (node1) has no RDMA device"
    [ "$NODE_ID" = 0 ] || rdma link add rxe0 type rxe netdev eth0
    "$NODE_BARRIER" added
}
in_group() { # OBJECTS COMMAND...: in a control group that gives no more of the device
    echo "rxe0 hca_object=$1" >/tmp/cgroup/few/rdma.max
    # shellcheck disable=SC2016 # expands there
    bash -c 'echo $$ >/tmp/cgroup/few/cgroup.procs && exec "$@"' - "${@:2}"
}
cgroup() { # too few objects to open; on node 1 enough for that, but for no buffer of the program's
    mkdir -p /tmp/cgroup
    mount -t cgroup2 none /tmp/cgroup || fail "no control groups"
    echo +rdma >/tmp/cgroup/cgroup.subtree_control || fail "no control group for RDMA"
    mkdir -p /tmp/cgroup/few
    opens_not "control group (rdma.max)" in_group 2
    ranks_are_nodes
    in_group $((NODE_ID ? 10 : 1000)) "$bench" allreduce --min 1M --max 1M --iterations 1 --warmup 0 \
        >"$NODE_DIR/few.$NODE_ID" 2>&1 || fail "allreduce: $(cat "$NODE_DIR/few.$NODE_ID")"
    cat "$NODE_DIR/few.$NODE_ID"
    [ "$NODE_ID" = 0 ] || [ "$(grep -c "cannot be registered.*(rdma.max)" "$NODE_DIR/few.1")" = 2 ] ||
        fail "the fall-back was not said, or too often"
}
job_dies() { # a rank of a job is killed in the middle of its calls, over what is chosen by itself
    ranks_are_nodes
    unset HALAY_TRANSPORT
    if [ "$NODE_ID" = 1 ]; then
        "$build/bin/cluster_rank" loop &
        await grep looping "$NODE_DIR/loop"
        sleep 0.5
        kill -KILL $! || fail "it has ended before it was killed"
        wait $!
        [ $? = 137 ] || fail "it was not killed"
    else
        HALAY_DEBUG=info "$build/bin/cluster_rank" loop >"$NODE_DIR/loop" 2>&1
        [ $? = 4 ] || fail "loop: $(cat "$NODE_DIR/loop")"
        grep -E "transport verbs|took|told|counters" "$NODE_DIR/loop"
        grep -q "told .* about rank 1 " "$NODE_DIR/loop" || fail "not told: $(cat "$NODE_DIR/loop")"
        [ "$(sed -n 's/.*call that failed took \([0-9]*\) ms/\1/p' "$NODE_DIR/loop")" -lt 15000 ] ||
            fail "told too late"
        grep -q "transport verbs" "$NODE_DIR/loop" || fail "verbs was not chosen"
    fi
    "$NODE_BARRIER" job
}
limits() {
    opens_not "locked memory (ulimit -l) is 64 KiB, and [0-9]* KiB are needed" locks 65536
    opens_not "rxe0/1 has no such GID" env HALAY_VERBS=gid=77
    opens_not "none has the name" env HALAY_VERBS=device=mlx9
    ip link set eth0 down
    opens_not "rxe0/1 is down" env
    ip link set eth0 up
    HALAY_VERBS=mtu=1500 "$put" open | grep -q "'mtu=1500' is not understood" || fail "mtu=1500"
    "$NODE_BARRIER" up
    ranks_are_nodes
    # Node 1 can register no large buffer, neither once nor for a call: its puts bounce, and what it
    # gets comes in messages.
    locks $((NODE_ID ? 3 << 20 : 1 << 30)) "$bench" allreduce --registered --min 4M --max 4M \
        --iterations 1 --warmup 1 >"$NODE_DIR/bench.$NODE_ID" 2>&1 || fail "allreduce: $(cat "$NODE_DIR/bench.$NODE_ID")"
    cat "$NODE_DIR/bench.$NODE_ID"
    [ "$NODE_ID" = 0 ] || [ "$(grep -c "cannot be registered" "$NODE_DIR/bench.1")" = 2 ] ||
        fail "the fall-back was not said, or too often"
}

faults=(deaths job_dies late_rank link_down held stranger no_device networks cgroup limits)
if [ "${1:-}" != machine ]; then # scripts/test takes half of them a day
    FAULTS=${FAULTS:-$("$folder/../../scripts/sample.py" "${faults[@]/#/fault-}" | sed s/fault-// | xargs)}
    export FAULTS
    on_machines verbs_faults.sh --timeout 330
fi
shared=$NODE_DIR turn=0
for fault in $FAULTS; do
    $fault
    export NODE_DIR=$shared
    echo "$fault: as it should be, at $SECONDS s"
done
