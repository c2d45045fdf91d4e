#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A node that loses its power, and one whose packets vanish: the others have the verdict by the deadline
# and name a rank of that node. The ranks on the cut-off node, whom Slurm can no longer end, end too.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 3 --cpus 4 --slurmd-timeout 5 # else srun waits longer for what is lost
export HALAY_DEADLINE=3

# Each task's output is written on its node: nothing of it has to pass a cut link.
begin() {
    rm -f out.*
    login timeout -k 5 60 salloc -Q --no-kill -N3 -n6 --ntasks-per-node=2 \
        srun --no-kill --mpi=pmix -o "$here/out.%t" "$rank" loop >out 2>err </dev/null &
    job=$!
    until_true grep -q looping out.0
}
told() { # RANK...: by the deadline and the time in which all hear of it (docs/reliability.md), about a rank of node 2
    local r ms
    for r in "$@"; do
        until_true grep -q "^told" "out.$r"
        says "out.$r" "^told [0-9]* rank $r: .* about rank [23] on n2:"
        ms=$(sed -n 's/.*call that failed took \([0-9]*\) ms/\1/p' "out.$r")
        echo "rank $r was told after $ms ms"
        [ "$ms" -lt 5500 ] || fail "rank $r was told after $ms ms"
    done
}
over() {
    wait $job
    status=$?
    [ $status != 0 ] || fail "the job was lost, and its status is 0"
    nothing_left 3
}

begin
slurm crash 2
told 0 1 4 5
over_without_2() { clean_node 1 && clean_node 3; }
until_true over_without_2
slurm boot 2
over

begin
slurm partition 2 drop
told 0 1 4 5
for r in 2 3; do # they see the others vanish
    until_true grep -q "^told" out.$r
    says out.$r "^told [0-9]* rank $r: .* about rank [0145] on n[13]:"
done
# Although nobody could have ended them. Slurm itself takes 45 s more to see that the job is over.
nothing_left 3
