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

# An array: its elements run at the same time on the same nodes.
batch "$source_folder/slurm/array.sbatch" "$rank" collectives
cat array-*.out >err
expect 0 "slurm/array.sbatch"
for element in 0 1 2 3; do
    [ "$(grep -c "^rank . of 2 " array-*-$element.out)" = 2 ] || fail "element $element is not a job of two ranks"
done

# Components of other sizes, in one job.
batch "$source_folder/slurm/hetjob.sbatch" "$rank" collectives
cat hetjob-*.out >err
expect 0 "slurm/hetjob.sbatch"
[ "$(grep -c "^rank . of 5 " hetjob-*.out)" = 5 ] || fail "not one job of five ranks"
rm hetjob-*.out
batch -N1 -n1 : -N2 -n2 : -N1 -n1 "$source_folder/slurm/hetjob.sbatch" "$rank" collectives
cat hetjob-*.out >err
expect 0 "slurm/hetjob.sbatch with three components"
[ "$(grep -c "^rank . of 4 " hetjob-*.out)" = 4 ] || fail "not one job of four ranks"
rm hetjob-*.out

# An srun that does not end after its ranks (Slurm before 24.11 now and then): the job ends, with the ranks' status.
mkdir late
# shellcheck disable=SC2016 # expands there
printf '#!/bin/bash\n"%s" "$@"\n[ "$1" = --version ] || exec sleep 1000\n' "$(command -v srun)" >late/srun
# shellcheck disable=SC2016
printf '#!/bin/sh\nsleep 3\n[ "$SLURM_PROCID" != 3 ] || exit 3\n' >third
chmod +x late/srun third
PATH=$here/late:$PATH batch -N1 -n1 : -N2 -n2 : -N1 -n1 "$source_folder/slurm/hetjob.sbatch" ./third
cat hetjob-*.out >err
expect 3 "slurm/hetjob.sbatch with an srun that does not end"
says err "srun has not ended 10 s after its last rank; the ranks' exit status: 3"

batch "$source_folder/slurm/hetjob.sbatch"
expect 2 "slurm/hetjob.sbatch without a program"
nothing_left 4
