# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of faults while ranks meet share: rank 0 is on node 3, ranks are started by hand.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC1091
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
start_nodes 3
export HALAY_DEADLINE=3
port=29500 pids=()

# begin RANK NODE RANKS [VARIABLE=VALUE...] ARGUMENTS...: rank 0 is on node 3
begin() {
    on "$2" timeout -k 5 20 env RANK="$1" WORLD_SIZE="$3" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK="$1" \
        MASTER_ADDR=10.78.0.3 MASTER_PORT=$port "${@:4}" >"out.$1" 2>"err.$1" </dev/null &
    pids[$1]=$!
}
# await STATUS...: of rank 0, 1, ...
await() {
    local r got=() all="$*"
    for ((r = 0; r < $#; r++)); do
        wait "${pids[r]}"
        got+=($?)
    done
    cat out.? >out
    cat err.? >err
    port=$((port + 20))
    [ "${got[*]}" = "$all" ] || fail "exit statuses ${got[*]}, not $all"
}
took() { # RANK MS
    local ms
    ms=$(sed -n 's/.*the call took \([0-9]*\) ms/\1/p' "out.$1")
    [ "${ms:-99999}" -le "$2" ] || fail "rank $1 was told after $ms ms, not $2"
}
report() { echo "== $1" && sed 's/^told [0-9]* //' out && cat err && rm -f out.* err.*; }
