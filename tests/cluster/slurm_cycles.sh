#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From halay_init to halay_finalize and again, with random pauses: no epoch is mixed up with another.
# shellcheck source-path=SCRIPTDIR source=lib.sh
cycles=${CLUSTER_CYCLES:-100}
. "$(dirname "$0")/lib.sh"
start_slurm 2 --cpus 4
limit=$((30 + cycles))
ranks -N2 -n4 --ntasks-per-node=2 "$rank" cycles "$cycles"
expect 0 "$cycles cycles"
counts out 4 "^rank .: $cycles cycles"
cat out
echo "in $ms ms"
nothing_left 2
