#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks under a launcher with PMI-1: pmi_server.py, and mpiexec of MPICH and Intel MPI where one is in .venv/mpich/,
# .venv/impi/ (PyPI: mpich, impi-rt) or $MPIEXEC. Jobs, ranks that die and leave, children of ranks, wrong variables.
# shellcheck source-path=SCRIPTDIR source=pmi_lib.sh disable=SC2016
. "$(dirname "$0")/pmi_lib.sh"

# whole COMMAND...: what a launcher has to be able to start; COMMAND takes the number of ranks next.
whole() {
    run timeout -k 5 60 "$@" 3 "$JOB_RANK" briefly
    expect 0 "$*"
    for r in 0 1 2; do says out "^rank $r of 3, pmi, "; done
    run timeout -k 5 60 "$@" 1 "$JOB_RANK" briefly
    expect 0 "one rank: $*"
    says out "^rank 0 of 1, alone"
    run timeout -k 5 60 "$@" 2 env HALAY_JOB=none "$JOB_RANK" briefly
    says out "^rank 0 of 1, alone"
    # A child of a rank is none, and says so.
    run timeout -k 5 60 "$@" 2 sh -c '"$JOB_RANK" briefly && exec "$JOB_RANK" briefly'
    [ "$status" != 0 ] || fail "a second program of a rank has joined"
    says err "has another program or MPI of this process used PMI before"
    # Whoever is killed, or calls _exit, takes the job with it: no other rank ends well. Hydra ends the job of a rank
    # that has called _exit(0), but may itself end with 0 then, as it does for MPICH's own programs.
    for how in kill exit; do
        run timeout -k 5 60 "$@" 3 "$JOB_RANK" $how
        [ "$status" != 0 ] || [ "$how$hydra" = exityes ] || fail "$how: $* has ended with 0"
        [ "$status" != 124 ] || fail "$how: $* has not ended"
        grep -q '^rank . of 3' out && fail "$how: a rank has ended well"
        within 15000
    done
}

run_server() { python3 -B "$server" "$1" -- "${@:2}"; }
export -f run_server
export server JOB_RANK
hydra=no
whole bash -c 'run_server "$@"' -
hydra=yes
tried=0
for mpiexec in ${MPIEXEC:-} "$source_folder"/.venv/{mpich,impi}/bin/mpiexec; do
    [ -x "$mpiexec" ] || continue
    whole "$mpiexec" -np
    tried=$((tried + 1))
    echo "as well under $mpiexec"
done
[ $tried -gt 0 ] || echo "no real mpiexec: not in \$MPIEXEC, .venv/mpich or .venv/impi"

# Not a job.
refused() { # refused TEXT VARIABLE=VALUE...
    run env "${@:2}" "$JOB_RANK"
    expect 1 "${@:2}"
    says err "$1"
    within 3000
}
refused "PMI_FD is '99', which is no open socket" PMI_FD=99 PMI_RANK=0 PMI_SIZE=2
refused "PMI_FD is '0', which is no open socket" PMI_FD=0 PMI_RANK=0 PMI_SIZE=2 </dev/null
refused "PMI_FD is '-1', which is no open socket" PMI_FD=-1 PMI_RANK=0 PMI_SIZE=2
refused "PMI_RANK is '2' and PMI_SIZE '2'" PMI_FD=99 PMI_RANK=2 PMI_SIZE=2
refused "PMI_RANK is 'x' and PMI_SIZE '2'" PMI_FD=99 PMI_RANK=x PMI_SIZE=2
refused "Running each alone would be silently wrong" PMI_RANK=0 PMI_SIZE=2
refused "Running each alone would be silently wrong" PMI_FD=99 PMI_RANK=0 PMI_SIZE=2 HALAY_PLUGIN_DIR="$here"
# Two processes of a node that use one connection.
pmi 2 -- sh -c '"$JOB_RANK" briefly & "$JOB_RANK" briefly; a=$?; wait $!; [ $a != 0 ] || [ $? != 0 ]'
[ "$(grep -c "^rank . of 2, pmi" out)" -le 2 ] || fail "a rank is there twice"
nothing_left
