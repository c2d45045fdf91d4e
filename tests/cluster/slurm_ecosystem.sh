#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of tests/python/ecosystem under srun --mpi=pmix: accelerate and the Trainer, which read RANK and WORLD_SIZE,
# and Lightning, which reads Slurm's variables. They return what they do over Gloo under torchrun. The environment is that
# of scripts/ecosystem (HALAY_ECOSYSTEM: its folder).
environment=${HALAY_ECOSYSTEM:-} # lib.sh takes HALAY_ variables away
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
python=${environment:-$source_folder/.venv-ecosystem}/bin/python
[ -x "$python" ] || skip "$python is not there: scripts/ecosystem makes it"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source_folder/python OMP_NUM_THREADS=1 HALAY_DEADLINE=60
export HALAY_LIBRARY=$build/lib/libhalay.so.0 GLOO_SOCKET_IFNAME=lo HOME=$here limit=120
start_slurm 1 --cpus 4

rank_of=("$python" "$source_folder/tests/python/ecosystem/rank.py")
# compare PACKAGE PROGRAM...
compare() {
    mkdir -p "$1-halay" "$1-gloo"
    ranks -N1 -n2 --ntasks-per-node=2 "${rank_of[@]}" halay "$here/$1-halay" "with_$1" "${@:2}"
    expect 0 "srun $*"
    run "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "${rank_of[@]:1}" gloo "$here/$1-gloo" "with_$1" "${@:2}"
    expect 0 "torchrun $*"
    for r in 0 1; do
        cmp "$1-halay/$r.json" "$1-gloo/$r.json" || fail "rank $r returned something else than over Gloo"
    done
    echo "$*: equal"
}
compare accelerate loop
compare transformers bert
compare lightning ddp
nothing_left 1
