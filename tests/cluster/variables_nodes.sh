#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torchrun's variables, one process started by hand on each node: the ranks find each other over TCP.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_nodes 2
export HALAY_DEADLINE=10

# job PORT COMMAND...
job() {
    local i pids=()
    for i in 0 1; do
        on $((i + 1)) timeout -k 5 40 env RANK=$i WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$i \
            MASTER_ADDR=10.78.0.1 MASTER_PORT="$1" "${@:2}" >out.$i 2>err.$i </dev/null &
        pids+=($!)
    done
    status=0
    for i in 0 1; do wait "${pids[i]}" || status=$?; done
    cat out.? >out
    cat err.? >err
    expect 0 "$*"
}
job 29400 "$rank" collectives
for i in 0 1; do says out.$i "^rank $i of 2 on v$((i + 1)): node $i of 2, local 0 of 1, tcp"; done
cat out
nothing_left 2
