#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Survivors go on under srun --mpi=pmix: a rank dies, and a whole node's ranks do. Slurm's PMIx plug-in lets the others
# live, as Halay has left PMIx by then; srun ends with the status of the killed ones.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 2 --cpus 4

# go_on RANKS SIZE FAILED SRUN...: the ranks in the mask die
go_on() {
    login timeout -k 5 40 srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 "${@:4}" "$BUILD/bin/job_survive" die "$1" \
        >out 2>err </dev/null
    status=$?
    expect 137 "srun, of which ranks were killed"
    counts err "$2" "goes on with $2; failed:$3[.]"
}
go_on 8 3 " 3"
go_on 1 3 " 0"
go_on 12 2 " 2 3"
nothing_left 2
