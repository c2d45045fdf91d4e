#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of MPI over Halay's library under srun, on two nodes: messages, communicators, collectives and windows.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export HALAY_DEADLINE=20 HALAY_START_DEADLINE=20
[ -x "$build/bin/mpi_messages-abi" ] || skip "no MPI library was built: it needs Python 3"
start_slurm 2 --cpus 4
for program in messages-abi messages-mpich collective_move-abi comm_make-abi "windows-abi 6" window_errors-abi \
    "window_threads-abi 20"; do
    # shellcheck disable=SC2086 # a program and its argument
    ranks -N2 -n4 "$build/bin/mpi_"$program
    expect 0 "srun --mpi=pmix, $program"
done
# Slurm's own PMI speaks PMI-1, too.
if login srun --mpi=list 2>&1 | grep -q "pmi2"; then
    run login timeout -k 5 50 srun --mpi=pmi2 -N2 --ntasks-per-node=2 "$rank" collectives
    expect 0 "srun --mpi=pmi2"
    counts out 4 "^rank . of 4 on n[12]: node [01] of 2, local [01] of 2, pmi, "
    run login timeout -k 5 50 srun --mpi=pmi2 -N2 -n4 "$build/bin/mpi_messages-abi"
    expect 0 "srun --mpi=pmi2, messages-abi"
fi
nothing_left 2
