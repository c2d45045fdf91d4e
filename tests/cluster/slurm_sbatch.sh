#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The templates in slurm/ for C programs, submitted as they are.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 4 --cpus 4
ln -s "$build" build # a source tree to submit from

batch "$source_folder/slurm/halay.sbatch"
cat halay-*.out >err
expect 0 "slurm/halay.sbatch"
says halay-*.out "^ *8 "
rm halay-*.out
batch -N2 -n4 "$source_folder/slurm/halay.sbatch" "$rank" collectives
cat halay-*.out >err
expect 0 "slurm/halay.sbatch on two nodes"
[ "$(grep -c "^rank . of 4 " halay-*.out)" = 4 ] || fail "not four ranks"
nothing_left 4
