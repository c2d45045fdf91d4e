#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process that joins the job again and again, by each launcher and over each transport between nodes:
# nothing hangs, nothing grows, nothing is left.
# shellcheck source-path=SCRIPTDIR source=lib.sh
cycles=${CLUSTER_CYCLES:-100}
. "$(dirname "$0")/lib.sh"
program=$build/bin/cycles_rank
limit=$((30 + cycles))
export HALAY_DEADLINE=20 OMPI_MCA_orte_base_help_aggregate=0

# twice NAME COMMAND...: over the usual transports, and over UCX
twice() {
    for HALAY_TRANSPORT in "" shm+ucx; do
        export HALAY_TRANSPORT
        run timeout -k 5 "$limit" "${@:2}" "$program" "$cycles"
        expect 0 "$1: $cycles cycles, ${HALAY_TRANSPORT:-usual transports}"
        counts out 4 "^rank .: $cycles cycles"
        echo "$1, ${HALAY_TRANSPORT:-usual transports}:"
        sort out
        # mpirun's own words, when it was not the first to set a process group
        sed -i "/plm:rsh: Warning: setpgid/d" err
        [ ! -s err ] || fail "$1: not silent"
    done
}
twice halayrun "$build/bin/halayrun" -np 4
start_slurm 2 --cpus 4
twice srun "$folder/slurm-cluster" run -- srun --mpi=pmix -N2 -n4 --ntasks-per-node=2
nothing_left 2
slurm down
kill "$guard" && rm guard # the next test-bed has its own
export HALAY_TESTBED=$here/nodes
start_nodes 2
twice mpirun "$folder/veth-nodes" exec 0 -- mpirun --allow-run-as-root \
    --mca plm_rsh_agent "$folder/veth-nodes rsh" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include 10.78.0.0/24 --host v1:2,v2:2 --map-by ppr:2:node \
    -x HALAY_TRANSPORT -x HALAY_DEADLINE -np 4
nothing_left 2
