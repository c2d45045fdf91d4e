# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What slurm-cluster and veth-nodes share: nodes made of namespaces. Sourced, not run.
#
# A "node" is a set of Linux namespaces (net, UTS, mount, IPC, PID) whose first process is a
# small bash that mounts private file systems and reaps orphans.  A "switch" is a namespace set
# (net, UTS, mount; PID namespace of the host) that holds a bridge; every node has a veth there.
# Nothing is ever added to the host's own network namespace, so several test-beds with the same
# addresses can live side by side, and the host's addresses and routes stay as they are.
#
# State lives in $STATE: one file "<name>.pid" per process that was started, holding
# "pid start-time" so that a recycled pid is never signalled.
#
# The caller sets: PROG (name for messages), STATE, NET (three octets), PREFIX (host-name prefix).

say()  { printf '%s: %s\n' "$PROG" "$*" >&2; }
die()  { say "$*"; exit 1; }
lost() { cat "${@:2}" >&2; die "$1 did not start"; } # what, its logs...
need() { command -v "$1" >/dev/null 2>&1 || die "$1 is missing; run '$PROG install' first"; }
can_make_nodes() { # else ends with 77 and the reason: for `check`, which tests call before `up`
    local p missing=() why
    [ "$(id -u)" = 0 ] || { echo "network and mount namespaces need root"; exit 77; }
    for p in "$@" ip nsenter unshare setpriv ps flock; do
        command -v "$p" >/dev/null || missing+=("$p")
    done
    [ ${#missing[@]} = 0 ] || { echo "no ${missing[*]} here ($PROG install)"; exit 77; }
    why=$(unshare --net --uts --mount --ipc --pid --fork --mount-proc --propagation slave bash -c '
        hostname halay && mount -t sysfs sysfs /sys && mount -t tmpfs halay /dev/shm &&
            ip link add br0 type bridge && ip link add v1 type veth peer name v2' 2>&1) ||
        { echo "namespaces with a bridge cannot be made here: ${why##*$'\n'}"; exit 77; }
}
need_root() { [ "$(id -u)" = 0 ] || die "needs root (network and mount namespaces)"; }

# ---------------------------------------------------------------- processes, by pid only
starttime() { # pid -> start time in ticks, empty if there is no such process
    local text='' s=()
    { IFS= read -rd '' text <"/proc/$1/stat"; } 2>/dev/null || [ -n "$text" ] || return 0
    text=${text##*) } # the command may hold blanks and brackets
    read -r -a s <<<"$text"
    case ${s[0]} in Z | X) return 0 ;; esac # a zombie counts as gone
    printf '%s' "${s[19]}"
}
keep_pid() { printf '%s %s\n' "$2" "$(starttime "$2")" >"$STATE/$1.pid"; }
live_pid() { # name -> pid if that very process still runs
    local p t
    [ -r "$STATE/$1.pid" ] || return 1
    read -r p t <"$STATE/$1.pid" || return 1
    [ -n "$t" ] && [ "$(starttime "$p")" = "$t" ] || return 1
    printf '%s' "$p"
}
stop_pid() { # name [grace seconds, 0 = SIGKILL at once]: end one process that we started
    local p grace=${2:-5} i
    if p=$(live_pid "$1"); then
        if [ "$grace" != 0 ]; then
            kill -TERM "$p" 2>/dev/null || :
            for ((i = 0; i < grace * 20; i++)); do
                live_pid "$1" >/dev/null || break
                sleep 0.05
            done
        fi
        if live_pid "$1" >/dev/null; then
            kill -KILL "$p" 2>/dev/null || :
            for ((i = 0; i < 100; i++)); do
                live_pid "$1" >/dev/null || break
                sleep 0.05
            done
        fi
    fi
    rm -f "$STATE/$1.pid"
}
wait_for() { # seconds, command...
    local i n=$(($1 * 20)); shift
    for ((i = 0; i < n; i++)); do "$@" && return 0; sleep 0.05; done
    return 1
}
spawn() { # name, log, command...: run detached, remember the pid
    local name=$1 log=$2; shift 2
    # not a group leader here (no job control), so setsid does not fork and $! is the command.
    # The lock's descriptor (9) must not leak into what outlives us.
    setsid "$@" </dev/null >>"$log" 2>&1 9>&- &
    keep_pid "$name" $!
    disown $!
}
only_child() { # pid -> its only child
    ps -o pid= --ppid "$1" 2>/dev/null | head -n 1 | tr -d ' '
}

# ---------------------------------------------------------------- switch and nodes
sw_pid()   { live_pid switch; }
node_pid() { # node number -> pid (as the host sees it) of the node's first process
    local p
    p=$(live_pid "node$1") || return 1
    p=$(only_child "$p")
    [ -n "$p" ] && printf '%s' "$p"
}
in_switch() { nsenter -t "$(sw_pid)" --net --uts --mount -- "$@"; }
sw_net()    { nsenter -t "$(sw_pid)" --net -- "$@"; }

# run inside the namespaces, before anything else: $1 = hostname, $2 = state, $3 = private (0/1),
# $4 = tmpfs size, rest = directories to show on the node although they lie under /tmp
read -r -d '' NS_INIT <<'INIT' || :
set -eu
name=$1 state=$2 private=$3 size=$4; shift 4
hostname "$name"
ip link set lo up
# /sys/class/net must be this namespace's (UCX finds its TCP devices there); a new sysfs hides
# /sys/fs/cgroup, so carry that over
w="$state/mnt.$name"
mkdir -p "$w"
mount -t tmpfs -o size=1m,mode=755 halay "$w"
mkdir "$w/cg"
if mountpoint -q /sys/fs/cgroup; then mount --rbind /sys/fs/cgroup "$w/cg"; fi
mount -t sysfs sysfs /sys
if mountpoint -q "$w/cg"; then mount --rbind "$w/cg" /sys/fs/cgroup; umount -l "$w/cg"; fi
umount "$w"
[ -e "$state/hosts" ] && mount --bind "$state/hosts" /etc/hosts
if [ "$private" = 1 ]; then
    mount -t tmpfs -o "size=$size,mode=1777" halay-shm /dev/shm
    mount -t tmpfs -o "size=$size,mode=1777" halay-tmp "$w"
    # the state and the shared directories stay visible at their own path
    for d in "$state" "$@"; do
        case $d in /tmp/*) mkdir -p "$w/${d#/tmp/}"; mount --rbind "$d" "$w/${d#/tmp/}";; esac
    done
    mount --rbind "$w" /tmp
fi
cd /
: >"$state/ready.$name"
if [ "$$" = 1 ]; then
    # pid 1: reap orphans for ever (bash's SIGCHLD handler does it)
    trap : TERM INT HUP
    while :; do sleep 1000 & wait $! || :; done
fi
exec sleep infinity
INIT

sw_up() { # create the namespace with the bridge
    sw_pid >/dev/null && return 0
    rm -f "$STATE/ready.$1"
    spawn switch "$STATE/log.switch" \
        unshare --net --uts --mount --propagation slave -- \
        bash -c "$NS_INIT" ns-init "$1" "$STATE" 0 0
    wait_for 10 test -e "$STATE/ready.$1" || lost "the switch" "$STATE/log.switch"
    sw_net ip link add br0 type bridge forward_delay 0
    sw_net ip link set br0 up
    sw_net ip addr add "$NET.254/24" dev br0
}
node_up() { # node number, tmpfs size, shared directories...
    local i=$1 size=$2 p; shift 2
    node_pid "$i" >/dev/null && return 0
    rm -f "$STATE/ready.$PREFIX$i"
    # --kill-child: when unshare is killed the node's pid 1 is, and with it all its processes
    spawn "node$i" "$STATE/log.$PREFIX$i" \
        unshare --net --uts --mount --ipc --pid --fork --kill-child=KILL --mount-proc \
        --propagation slave -- \
        bash -c "$NS_INIT" ns-init "$PREFIX$i" "$STATE" "${NODE_PRIVATE:-1}" "$size" "$@"
    wait_for 10 test -e "$STATE/ready.$PREFIX$i" || lost "node $i" "$STATE/log.$PREFIX$i"
    p=$(node_pid "$i") || die "node $i died"
    sw_net ip link del "v$i" 2>/dev/null || :
    sw_net ip link add "v$i" type veth peer name eth0 netns "$p"
    sw_net ip link set "v$i" master br0 up
    nsenter -t "$p" --net -- ip addr add "$NET.$i/24" dev eth0
    nsenter -t "$p" --net -- ip link set eth0 up
}
node_down() { # a power cut: the link first, so that no peer hears of it; then the kernel kills them all
    if sw_pid >/dev/null; then sw_net ip link del "v$1" 2>/dev/null || :; fi
    stop_pid "node$1" 0
}
in_ns() { # network namespace, but this process -> the processes that live in it
    local q
    for q in $(stat -c %N /proc/[0-9]*/ns/net 2>/dev/null | awk -F"'" -v ns="$1" -v me="$2" \
        '$4 == ns { split($2, part, "/"); if (part[3] != me) print part[3] }'); do
        if [ -n "$(starttime "$q")" ]; then echo "$q"; fi
    done
}
sw_down() { # end whatever still lives in the switch's network namespace, then the namespace
    local p q ns left='' i
    if p=$(sw_pid); then
        ns=$(readlink "/proc/$p/ns/net")
        for ((i = 0; i < 50; i++)); do
            left=$(in_ns "$ns" "$p")
            if [ -z "$left" ]; then break; fi
            for q in $left; do # half a second's grace
                if [ $i = 0 ]; then kill -TERM "$q" 2>/dev/null || :; fi
                if [ $i -ge 10 ]; then kill -KILL "$q" 2>/dev/null || :; fi
            done
            sleep 0.05
        done
    fi
    stop_pid switch 0
}
node_link() { # node number, up|down|drop
    case $2 in
    up)   sw_net ip link set "v$1" master br0 up ;;
    down) sw_net ip link set "v$1" down ;;
    drop) sw_net ip link set "v$1" nomaster up ;;
    *)    die "say up, down (link lost) or drop (link stays, packets vanish)" ;;
    esac
}
link_state() { # node number -> up, down or drop
    sw_net ip -o link show "v$1" |
        awk '{ print /state UP/ ? (/master br0/ ? "up" : "drop") : "down" }'
}
node_shape() { # node, rate, burst, latency
    local rate=$2 burst=${3:-128kb} lat=${4:-20ms} p
    p=$(node_pid "$1") || die "node $1 is not up"
    if [ "$rate" = off ]; then
        sw_net tc qdisc del dev "v$1" root 2>/dev/null || :
        nsenter -t "$p" --net -- tc qdisc del dev eth0 root 2>/dev/null || :
    else
        sw_net tc qdisc replace dev "v$1" root tbf rate "$rate" burst "$burst" latency "$lat"
        nsenter -t "$p" --net -- tc qdisc replace dev eth0 root tbf rate "$rate" burst "$burst" latency "$lat"
    fi
}
node_loss() { # node, percent
    local p t
    [[ $2 =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "loss I PERCENT"
    need nft
    p=$(node_pid "$1") || die "node $1 is not up"
    nsenter -t "$p" --net -- nft delete table inet halay 2>/dev/null || :
    t=$(awk -v p="$2" 'BEGIN { printf "%d", p * 100 }')
    if [ "$t" -gt 0 ]; then
        nsenter -t "$p" --net -- nft -f - <<NFT
table inet halay {
    chain in {
        type filter hook input priority 0; policy accept;
        iifname "eth0" numgen random mod 10000 < $t drop
    }
}
NFT
    fi
}
node_enter() { # node number, command...: replaces this process
    local i=$1 p; shift
    p=$(node_pid "$i") || die "no node $i"
    # shellcheck disable=SC2016 # expands on the node
    # the PID namespace makes nsenter fork; should nsenter be ended, the command gets SIGTERM
    exec nsenter -t "$p" --net --uts --mount --ipc --pid -- \
        setpriv --pdeathsig TERM -- \
        bash -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' sh "$PWD" "$@"
}

shared_folder() { # a directory that the nodes are to see -> its own path
    local d
    d=$(cd "$1" && pwd -P) || die "--share: no directory $1"
    case $d/ in /dev/shm/*) die "--share: $d lies under /dev/shm, which every node has of its own";; esac
    printf '%s' "$d"
}

# ---------------------------------------------------------------- where the state is
# HALAY_TESTBED names the directory; without it `up` makes one and leaves its name in $POINTER
pointer_read() {
    if [ -f "$POINTER" ] && [ ! -L "$POINTER" ] && [ -O "$POINTER" ]; then cat "$POINTER"; fi
}
state_find() { # for all commands but up
    STATE=${HALAY_TESTBED:-$(pointer_read)}
    [ -n "$STATE" ] && [ -d "$STATE" ] && [ -e "$STATE/$MARK" ]
}
state_make() { # for up
    if state_find; then STATE=$(cd "$STATE" && pwd -P); return 0; fi
    if [ -n "${HALAY_TESTBED:-}" ]; then
        mkdir -p "$HALAY_TESTBED"
        STATE=$(cd "$HALAY_TESTBED" && pwd -P)
        [ -z "$(ls -A "$STATE")" ] ||
            die "HALAY_TESTBED ($STATE) is neither empty nor a $PROG state directory"
    else
        STATE=$(mktemp -d "/tmp/halay-$MARK.XXXXXX")
        rm -f "$POINTER"
        printf '%s\n' "$STATE" >"$POINTER"
    fi
    [ ${#STATE} -le 60 ] ||
        die "the state directory's name is too long for Unix sockets (60 characters at most)"
    chmod 755 "$STATE"
    : >"$STATE/$MARK"
}
state_drop() {
    local d
    # nothing is mounted on the host's side; the directories are plain
    for d in "$STATE"/mnt.*; do if [ -d "$d" ]; then rmdir "$d" 2>/dev/null || :; fi; done
    rm -rf --one-file-system "$STATE"
    if [ "$(pointer_read)" = "$STATE" ]; then rm -f "$POINTER"; fi
}
