# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of the TCP rendezvous share: ranks started by hand, each with its output in out.NAME
# and err.NAME and, once they are awaited, its status in ${was[NAME]}.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT HALAY_SECRET \
    HALAY_RENDEZVOUS HALAY_JOB TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT
export HALAY_DEADLINE=20
declare -A pids was
# Below the ports that the kernel gives to callers; new_port: another for the next job.
port=$((20000 + $$ % 60 * 200))
new_port() { port=$((port + 20)); }

# begin NAME RANK SIZE [VARIABLE=VALUE...] COMMAND...
begin() {
    local name=$1
    empty "out.$name" "err.$name"
    env RANK="$2" WORLD_SIZE="$3" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${@:4}" \
        >"out.$name" 2>"err.$name" &
    pids[$name]=$!
}

# Waits for all ranks that were begun.
await() {
    local name
    was=()
    for name in "${!pids[@]}"; do
        wait "${pids[$name]}"
        was[$name]=$?
    done
    pids=()
    new_port
}

# What a rank ended with and said: ended NAME STATUS [TEXT...]
ended() {
    local text
    [ "${was[$1]}" = "$2" ] || { cat err.* >err && fail "$1 ended with ${was[$1]}, not $2"; }
    for text in "${@:3}"; do says "err.$1" "$text"; done
}

# Runs a whole job: job SIZE [VARIABLE=VALUE...] COMMAND...
job() {
    local r
    for ((r = 0; r < $1; r++)); do begin "$r" "$r" "$@"; done
    await
    for ((r = 0; r < $1; r++)); do ended $r 0; done
}

# TCP connections in state $2 (01 established, 0A listening) at port $1 of this machine.
sockets() { awk -v p=":$(printf %04X "$1")\$" -v s="$2" '$2 ~ p && $4 == s' /proc/net/tcp /proc/net/tcp6 | wc -l; }
has_sockets() { [ "$(sockets "$1" "$2")" -ge "$3" ]; }
listens() { has_sockets "$1" 0A 1; }
