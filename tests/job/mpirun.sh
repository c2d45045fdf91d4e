#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same client under another launcher with a PMIx server: Open MPI's mpirun.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
command -v mpirun >/dev/null || { echo "skipped: no mpirun (Debian: openmpi-bin)"; exit 77; }
mpirun --version 2>/dev/null | grep -q 'Open MPI' || { echo "skipped: mpirun is not Open MPI's"; exit 77; }
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
for n in 2 4; do
    run mpirun $root --oversubscribe -np $n "$JOB_CLIENT" info
    expect 0 "mpirun -np $n"
    [ "$(wc -l <out)" = $n ] || fail "not $n lines"
    [ "$(sed 's/ |.*//' out | sort -u | wc -l)" = 1 ] || fail "$n ranks see different jobs"
    says out "^$n ranks on 1 nodes, pmix (mpirun)"
done
