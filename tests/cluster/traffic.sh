#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What one allreduce sends inside the nodes and between them is what the formulas say, over tcp and over ucx.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 3 --cpus 4

for transport in shm+tcp shm+ucx; do
    for job in "2 -N2 -n4 --ntasks-per-node=2" "3 -N3 -n6 --ntasks-per-node=2"; do
        # shellcheck disable=SC2086 # words
        run env HALAY_TRANSPORT=$transport "$folder/slurm-cluster" run -- srun ${job#* } --mpi=pmix "$rank" traffic
        expect 0 "$transport, srun $job"
        echo "$transport, srun ${job#* }:" && sort out
    done
done
