#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that are not set alike, and one that is never there: the same error on all, that says whose.
# shellcheck source-path=SCRIPTDIR source=lib.sh source=../job/other_build.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
start_slurm 2 --cpus 4

ranks -N2 -n4 --ntasks-per-node=2 bash -c '
    [ $SLURM_NODEID = 0 ] || export HALAY_ALGORITHM=allreduce=ring,barrier=dissemination
    exec "$0" one' "$rank"
within 5000
expect 4 "different settings"
counts out 4 "^told .* settings differ: .* algorithm (chosen).* rank [23] has algorithm allreduce=ring,barrier=diss"
[ "$(sed -n 's/^told [0-9]* rank [0-9]: //p' out | sort -u | wc -l)" = 1 ] || fail "not the same error on all ranks"
[ "$(lines "^rank . of 4$" out)" = 0 ] || fail "a rank has got a result"
nothing_left 2

# A rank of another build: its node says so at once, and the other node as soon as it is there.
. "$folder/../job/other_build.sh"
other_build
for odd in 0 1 3; do
    ranks -N2 -n4 --ntasks-per-node=2 bash -c '
        [ $SLURM_PROCID != '$odd' ] || export LD_LIBRARY_PATH='"$here"'/other
        [ $SLURM_NODEID != 1 ] || sleep 1.5
        exec "$0" one' "$rank"
    within 6000 # the deadline is 300 s
    expect 5 "another build on rank $odd"
    text="rank $((odd | 1)) .* runs Halay .*, but rank $((odd & 2)) .* runs Halay .*: run the same version"
    [ "$(lines "halay error: $text" err)" = 1 ] || fail "not one voice on the node of rank $odd"
    counts err 1 "halay error: the ranks on n$((odd / 2 + 1)) cannot join the job: $text"
    [ "$(lines "halay error: " err)" = 2 ] || fail "not one voice a node"
    nothing_left 2
done

# A rank that dies before halay_init: the others end by the deadline.
export HALAY_DEADLINE=3
for absent in 0 1 3; do
    ranks -N2 -n4 --ntasks-per-node=2 "$rank" absent $absent
    within 7000
    expect 137 "srun, of which rank $absent was killed"
    # Each by its own deadline, or when another one's is over: a node's first rank ends 0.6 s before.
    counts out 3 "^halay_init returned -9 after \(2[3-9]..\|[34]...\) ms"
    says err "not all of the 4 ranks joined within 3.0 s"
    [ "$(lines "has left" err)" = 0 ] || fail "a rank is blamed whose time was over"
    [ "$(lines "halay error: " err)" -le 2 ] || fail "more than one voice a node"
    nothing_left 2
done
