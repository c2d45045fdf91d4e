#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks of MPICH's mpiexec (.venv/mpich/, from PyPI), or of $MPIEXEC, by PMI-1 on two nodes, which it enters by an agent
# instead of ssh: calls of Halay, programs of MPI, MPICH and Halay in one process, a rank that is killed.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
mpiexec=${MPIEXEC:-$source_folder/.venv/mpich/bin/mpiexec}
[ -x "$mpiexec" ] || skip "no $mpiexec (PyPI: pip install --prefix .venv/mpich mpich)"
start_nodes 2 --share "$(dirname "$(dirname "$mpiexec")")"
# shellcheck disable=SC2016
printf '%s\n' '#!/bin/sh' 'while case $1 in -*) ;; *) false ;; esac; do shift; done' "exec $folder/veth-nodes rsh \"\$@\"" >rsh
chmod +x rsh

# mpi RANKS A_NODE COMMAND...
mpi() {
    run veth exec 0 -- timeout -k 5 50 "$mpiexec" -launcher ssh -launcher-exec "$here/rsh" -hosts v1,v2 -ppn "$2" \
        -np "$1" "${@:3}"
}
export HALAY_DEADLINE=10 HALAY_START_DEADLINE=10
for shape in "2 1" "4 2" "5 3"; do
    # shellcheck disable=SC2086
    mpi $shape "$rank" collectives
    expect 0 "mpiexec, $shape"
    counts out "${shape% *}" "^rank . of ${shape% *} on v[12]: node [01] of 2, local . of [123], pmi"
    sort -V out
done
if [ -x "$build/bin/mpi_messages-abi" ]; then
    for program in messages-abi messages-mpich comm_make-abi; do
        mpi 4 2 "$build/bin/mpi_$program"
        expect 0 "mpiexec, $program"
    done
fi
# MPICH in the same process uses the same connection of PMI, in any order of their lives.
mpich=$(dirname "$(dirname "$mpiexec")")/lib
if [ -e "$mpich/libmpi.so.12" ] && "$python" -c "import mpi4py" 2>/dev/null; then
    for order in around before after outer crossed; do
        mpi 3 2 env MPI4PY_LIBMPI="$mpich/libmpi.so.12" LD_LIBRARY_PATH="$mpich" PYTHONDONTWRITEBYTECODE=1 \
            HALAY_LIBRARY="$build/lib/libhalay.so.0" "$python" "$folder/mpi4py_rank.py" $order
        expect 0 "mpiexec, MPICH and Halay: $order"
        [ "$(grep -o "rank . of 3: $order was right" out | wc -l)" = 3 ] || fail "$order: not 3 ranks"
    done
fi
# shellcheck disable=SC2016
mpi 4 2 sh -c '[ $PMI_RANK != 3 ] || { sleep 2 && kill -KILL $$; } & exec "$0" loop 20' "$rank"
[ "$status" != 0 ] || fail "rank 3 was killed, and the job has ended well"
within 12000
nothing_left 2
