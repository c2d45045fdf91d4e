#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of MPI over Halay's library under srun, on two nodes: messages, communicators and collectives.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export HALAY_DEADLINE=20 HALAY_START_DEADLINE=20
[ -x "$build/bin/mpi_messages-abi" ] || skip "no MPI library was built: it needs Python 3"
start_slurm 2 --cpus 4
for program in messages-abi messages-mpich collective_move-abi comm_make-abi; do
    ranks -N2 -n4 "$build/bin/mpi_$program"
    expect 0 "srun --mpi=pmix, $program"
done
nothing_left 2
