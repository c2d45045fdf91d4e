#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An MPI that is initialized before Halay, between its lives, or is over, under Slurm's srun: with PMIx both are of
# one job; without, no rank is one of one. Elsewhere: job/mpi_first.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export HALAY_DEADLINE=20 HALAY_START_DEADLINE=20 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=10.0.0.0/8
mpi=$build/bin/job_lives
run "$mpi" if
[ "$status" = 0 ] || skip "no Open MPI (Debian: libopenmpi3): $(tail -1 err)"
start_slurm 2 --cpus 4
for order in ihhf hihf; do
    for again in 1 2; do # as in mpi4py.sh: Open MPI 4.1 crashes now and then under srun
        ranks -N2 -n2 "$mpi" $order
        if [ "$status" = 0 ] || ! grep -q "Segmentation fault" err || grep -q halay err; then break; fi
        echo "$order: again ($again), MPI crashed"
    done
    expect 0 "srun --mpi=pmix, $order"
    for r in 0 1; do counts out $((${#order} - 2)) "^rank $r of 2$"; done
done
# Open MPI 4 refuses itself what srun has started without PMIx; another MPI may go on, alone.
for order in ihf ifh h; do
    run login timeout -k 5 40 srun --mpi=none -N2 -n2 "$mpi" $order
    [ "$status" != 0 ] || fail "srun --mpi=none, $order: exit status 0"
    ! grep -q "^rank" out || fail "srun --mpi=none, $order: a rank is alone"
done
counts out 2 "^refused: Slurm's srun announced 2 ranks, but they cannot be found"
nothing_left 2
