#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# JAX on several nodes under srun --mpi=pmix, its collectives over libhalay_mpi: with Slurm's variables, which JAX reads
# itself; and told by halay.jax, with those of PALS or JSM instead, which JAX does not know. CLUSTER_LONG=1: more of both.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source_folder/python HALAY_LIBRARY=$build/lib/libhalay.so.0 HALAY_DEADLINE=20
export JAX_PLATFORMS=cpu JAX_CPU_COLLECTIVES_IMPLEMENTATION=mpi MPITRAMPOLINE_LIB=$build/lib/libhalay_mpi.so
"$python" -c 'import importlib.util as u, sys
sys.exit([name for name in ("jax", "cffi") if not u.find_spec(name)] or 0)' 2>err || skip "$python lacks $(tail -1 err)"
start_slurm 3 --cpus 4

# job RANKS NODES COMMAND...: each rank is right, and they are on as many nodes
job() {
    ranks "-N$2" "-n$1" "${@:3}"
    expect 0 "srun -N$2 -n$1 ${*:3}"
    counts out "$1" "^rank [0-9]* of $1 on n[0-9]*: right$"
    [ "$(sed 's/.* on \(n[0-9]*\): right/\1/' out | sort -u | wc -l)" = "$2" ] || fail "not $2 nodes"
    echo "${*: -1}, $1 ranks on $2 nodes: $ms ms"
}

# under NAME=VALUE...: these variables alone tell who the ranks are, beside PMIx
under() {
    # shellcheck disable=SC2016 # expands there
    echo "export $*"' && unset $(compgen -e | grep ^SLURM) && exec "$0" "$@"'
}

rank_of=("$python" "$folder/jax_rank.py")
job 2 2 "${rank_of[@]}" stock
# shellcheck disable=SC2016 # expands there
job 2 2 bash -c "$(under 'PALS_RANKID=$SLURM_PROCID PALS_NRANKS=2 PALS_LOCAL_RANKID=0')" "${rank_of[@]}" told
if [ "${CLUSTER_LONG:-}" ]; then
    job 5 3 "${rank_of[@]}" stock
    job 5 3 "${rank_of[@]}" told
    # shellcheck disable=SC2016 # expands there
    job 2 2 bash -c "$(under 'JSM_NAMESPACE_RANK=$SLURM_PROCID JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=0')" "${rank_of[@]}" told
fi
nothing_left 3
