#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Outside of srun a program is alone, without a word: on the login node, in the shells of salloc and of
# a batch script, whatever they have announced. Under srun without PMIx it must not be: each rank refuses.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
echo "MpiDefault=none" >conf
start_slurm 2 --cpus 4 --conf "$here/conf"

alone() { # WHERE
    expect 0 "$1"
    [ "$(cat out)" = "rank 0 of 1" ] || fail "$1: not alone"
    [ ! -s err ] || fail "$1: not silent"
}
run login "$rank" one
alone "the login node"
run login salloc -Q -N2 -n4 "$rank" one
alone "salloc's shell"
cat >job.sh <<END
#!/bin/bash
#SBATCH -N2 -n4
$rank one >out 2>err
END
batch -o job.out job.sh
alone "the shell of a batch script"
run login srun -n1 "$rank" one # one task: nothing to find
alone "srun -n1 without PMIx"
if has_torch; then
    program="import halay.torch as hvd; hvd.init(); print(f'rank {hvd.rank()} of {hvd.size()}')"
    run login salloc -Q -N2 -n4 "$python" -c "$program"
    alone "Python in salloc's shell"
fi

for how in "" --mpi=none; do
    for place in "-N1 -n2" "-N2 -n2"; do
        # shellcheck disable=SC2086
        run login timeout 20 srun $how $place "$rank" one
        within 5000
        expect 5 "srun $how $place without PMIx"
        counts err 2 "Slurm's srun announced 2 ranks, .* start it with srun --mpi=pmix"
        [ ! -s out ] || fail "a rank ran alone"
    done
done
nothing_left 2
