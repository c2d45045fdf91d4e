#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Open MPI's mpirun over two nodes, which it enters by an agent instead of ssh.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
command -v mpirun >/dev/null || skip "no mpirun (Debian: openmpi-bin)"
[[ $(mpirun --version 2>/dev/null) == *"Open MPI"*" 4."* ]] || skip "mpirun is not Open MPI's, version 4"
start_nodes 2

# job RANKS A_NODE
job() {
    run veth exec 0 -- timeout -k 5 50 mpirun --allow-run-as-root --mca plm_rsh_agent "$folder/veth-nodes rsh" \
        --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.78.0.0/24 --host "v1:$2,v2:$2" \
        --map-by "ppr:$2:node" -x HALAY_TESTBED -x HALAY_DEADLINE -np "$1" "$rank" collectives
    expect 0 "mpirun -np $1"
    counts out "$1" "^rank . of $1 on v[12]: node [01] of 2, local . of $2, pmix (mpirun)"
    sort -V out
}
export HALAY_DEADLINE=10
job 2 1
job 4 2
nothing_left 2
