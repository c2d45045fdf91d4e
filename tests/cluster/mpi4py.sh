#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# MPI and Halay in one process, on several nodes, in every order of their lives: both start from the same
# PMIx server, and neither may notice the other. MPI over its own TCP and over UCX, beside Halay's UCX.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export PYTHONDONTWRITEBYTECODE=1 HALAY_LIBRARY=$build/lib/libhalay.so.0 HALAY_DEADLINE=15 HALAY_TRANSPORT=""
"$python" -c "from mpi4py import MPI; assert 'Open MPI v4.' in MPI.Get_library_version()" >out 2>err ||
    skip "$python has no mpi4py on Open MPI 4 (Debian: openmpi-bin; PyPI: mpi4py): $(tail -1 err)"
export OMPI_MCA_btl_tcp_if_include=10.0.0.0/8 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any # else for InfiniBand only

# What MPI says without us, too: a rank was gone before another took leave of it over UCX's TCP; mpirun
# was not the first to set a process group.
noise="plm:rsh: Warning: setpgid\|ucp_disconnect_nb([0-9]*) failed: Endpoint timeout\|error during flush: Endpoint timeout"

export OMPI_MCA_pml="" # set by each job

# Those that this run takes: an order under a launcher with the libraries under both.
cells=" $("$folder/../../scripts/sample.py" 3 cell-{login,veth}-{ob1,ucx,ucx-shm+ucx}-{around,before,after,outer,crossed} | xargs) "

# orders RANKS NODES COMMAND...: each order, as that command's ranks
orders() {
    local order again n=$1 nodes=$2
    for order in around before after outer crossed; do
        [[ $cells == *" cell-$3-$OMPI_MCA_pml${HALAY_TRANSPORT:+-$HALAY_TRANSPORT}-$order "* ]] || continue
        run "${@:3}" "$python" "$folder/mpi4py_rank.py" "$order"
        # MPI_Init of Open MPI 4.1.4 crashes now and then under srun; so it does in programs without Halay
        # (`startup` counts them).
        for again in 1 2; do
            if ! grep -q "Signal: Segmentation fault" err || grep -q halay err; then break; fi
            echo "$3: $order, MPI over $OMPI_MCA_pml: again ($again), MPI crashed"
            run "${@:3}" "$python" "$folder/mpi4py_rank.py" "$order"
        done
        # OpenPMIx 4.2 may lose an answer in a second life of a task (1 of 26 jobs under mpirun; two lives of a
        # program that only calls PMIx show it): then Halay has to end by its deadline, and another job is right.
        for again in 1 2; do
            if [ $order != after ] || [ "$status" = 0 ] || [ "$ms" -lt $((HALAY_DEADLINE * 800)) ]; then break; fi
            within $((HALAY_DEADLINE * 1000 + 10000))
            nothing_left "$nodes"
            echo "$3: after, MPI over $OMPI_MCA_pml: again ($again), the launcher has lost an answer"
            run "${@:3}" "$python" "$folder/mpi4py_rank.py" "$order"
        done
        expect 0 "${*:3} $order, $OMPI_MCA_pml, ${HALAY_TRANSPORT:-usual transports}"
        # mpirun mixes lines
        [ "$(grep -o "rank . of $n: $order was right" out | wc -l)" = "$n" ] || fail "$order: not $n ranks"
        sed -i "/$noise/d" out err
        [ ! -s err ] || fail "$order: not silent"
        sed -i "s/rank . of $n: $order was right//g; /^$/d" out
        [ ! -s out ] || fail "$order: says more than it should"
        nothing_left "$nodes"
        echo "${3}: $order, MPI over $OMPI_MCA_pml, Halay over ${HALAY_TRANSPORT:-its usual transports}: $ms ms"
    done
}

# pairs ARGUMENTS OF orders: with each of the libraries under them
pairs() {
    OMPI_MCA_pml=ob1 orders "$@"
    OMPI_MCA_pml=ucx orders "$@"
    OMPI_MCA_pml=ucx HALAY_TRANSPORT=shm+ucx orders "$@"
}
start_slurm 3 --cpus 4
pairs 5 3 login timeout -k 5 40 srun --mpi=pmix -N3 -n5
slurm down
kill "$guard" && rm guard # the next test-bed has its own

export HALAY_TESTBED=$here/nodes
start_nodes 2
for name in $(compgen -e | grep -E '^(OMPI|HALAY)_') PYTHONDONTWRITEBYTECODE; do carry+=(-x "$name"); done
pairs 4 2 veth exec 0 -- timeout -k 5 40 mpirun --allow-run-as-root --mca plm_rsh_agent "$folder/veth-nodes rsh" \
    --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.78.0.0/24 --host v1:2,v2:2 \
    --map-by ppr:2:node "${carry[@]}" -np 4
