#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which launcher gets the job, and with which words: a table of allocations and host lists.
# shellcheck source-path=SCRIPTDIR source=places_lib.sh
. "$(dirname "$0")/places_lib.sh"
stand_ins srun jsrun mpirun prterun
here_name=$(hostname)
d=(-- --dry-run)
local="halayrun --launcher local -np"

# This machine: as ever.
prints "$local 3 p" "${d[@]}" -np 3 p
for host in localhost:2 127.0.0.1:2 "$here_name:2" "${here_name%%.*}.some.domain:2" localhost,"$here_name"; do
    prints "$local 2 p" "${d[@]}" -H "$host" p
done
prints "$local 1 p" "${d[@]}" -np 1 -H localhost:2 p
prints "env 'A=it'\\''s' $local 2 -l --timeout 9 p 'a b' '' -np" "${d[@]}" -np 2 -l --timeout 9 -x "A=it's" p "a b" "" -np

# Slurm.
srun="srun --mpi=pmix --export=ALL --input=0"
job=(SLURM_JOB_ID=42)
two=("${job[@]}" SLURM_JOB_NUM_NODES=2 SLURM_NNODES=2 SLURM_NTASKS=8 "SLURM_TASKS_PER_NODE=4(x2)" "SLURM_JOB_CPUS_PER_NODE=4(x2)" SLURMD_NODENAME=n1)
prints "$srun -N2 -n8 --ntasks-per-node=4 p" "${two[@]}" "${d[@]}" p
prints "$srun -N2 -n8 --ntasks-per-node=4 p" "${two[@]}" "${d[@]}" -np 8 p
prints "$srun -N2 -n6 --ntasks-per-node=3 p" "${two[@]}" "${d[@]}" -np 6 p
prints "$srun -N2 -n5 p" "${two[@]}" "${d[@]}" -np 5 p
prints "$srun -N1 -n1 --ntasks-per-node=1 p" "${two[@]}" "${d[@]}" -np 1 p
prints "$srun -N2 -n4096 --ntasks-per-node=2048 p" "${two[@]}" "${d[@]}" -np 4096 p
prints "$srun --label -N2 -n8 --ntasks-per-node=4 p" "${two[@]}" "${d[@]}" -l p
prints "timeout --foreground --kill-after=10 60 $srun -N2 -n8 --ntasks-per-node=4 p" "${two[@]}" "${d[@]}" --timeout 60 p
prints "env -u SLURM_NTASKS_PER_NODE $srun -N2 -n4 --ntasks-per-node=2 --cpus-per-task=2 p" \
    "${two[@]}" SLURM_NTASKS_PER_NODE=4 SLURM_CPUS_PER_TASK=2 "${d[@]}" -np 4 p
prints "$srun -N2 -n8 --ntasks-per-node=4 p" "${two[@]}" SLURM_CPUS_PER_TASK=2 SRUN_CPUS_PER_TASK=2 "${d[@]}" p
three=("${job[@]}" SLURM_NNODES=3 SLURM_NTASKS=7 "SLURM_TASKS_PER_NODE=4,2,1" "SLURM_JOB_CPUS_PER_NODE=4,2,1")
prints "$srun -N3 -n7 p" "${three[@]}" "${d[@]}" p
prints "$srun -N3 -n6 p" "${three[@]}" "${d[@]}" -np 6 p
prints "$srun -N3 -n9 p" "${job[@]}" SLURM_NNODES=3 "SLURM_TASKS_PER_NODE=4(x2),1" "${d[@]}" p # no -n for sbatch
prints "$srun -N2 -n2 p" "${job[@]}" SLURM_NNODES=2 SLURM_TASKS_PER_NODE=nonsense "${d[@]}" p
# A shell on a login node, with one node elsewhere; a node's own shell; an interactive step.
one=("${job[@]}" SLURM_NNODES=1 SLURM_NTASKS=3 SLURM_TASKS_PER_NODE=3)
prints "$srun -N1 -n3 --ntasks-per-node=3 p" "${one[@]}" SLURM_JOB_NODELIST=n1 "${d[@]}" p
prints "$local 3 p" "${one[@]}" SLURM_JOB_NODELIST="$here_name" "${d[@]}" p
prints "$local 3 p" "${one[@]}" SLURM_JOB_NODELIST=n1 SLURMD_NODENAME=n1 "${d[@]}" p
prints "$local 2 p" "${one[@]}" "${d[@]}" -np 2 p
prints "$srun -N2 -n8 --ntasks-per-node=4 p" "${two[@]}" SLURM_STEP_ID=4294967290 "${d[@]}" p
# A task is no allocation's shell.
prints "$local 2 p" "${two[@]}" SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=8 "${d[@]}" -np 2 p
prints "env -u PMIX_RANK $local 2 p" "${two[@]}" PMIX_RANK=0 "${d[@]}" -np 2 p
refuses 2 "say how many ranks" "${two[@]}" SLURM_STEP_ID=0 "${d[@]}" p
# Hosts: rank by rank, for srun would sort them, in a file.
by_rank() { printf "%s 9<<'END'\n" "$1" && printf '%s\n' "${@:2}" END; }
prints "$(by_rank "env SLURM_HOSTFILE=/dev/fd/9 $srun -N2 -n3 --distribution=arbitrary p" n2 n2 n1)" "${two[@]}" "${d[@]}" -H n2:2,n1 p
prints "$(by_rank "env -u SLURM_HOSTFILE SLURM_HOSTFILE=/dev/fd/9 $srun -N1 -n2 --distribution=arbitrary p" n2 n2)" "${two[@]}" \
    SLURM_HOSTFILE=f "${d[@]}" -H n2:2,n1 -np 2 p
prints "$local 2 p" "${two[@]}" "${d[@]}" --launcher local -np 2 p
prints "$srun -n4 p" "${d[@]}" --launcher srun -np 4 p
# What ranks print is kept by the launcher, and nothing is made meanwhile.
prints "$srun -N2 -n16 --ntasks-per-node=8 --output=o/rank.%2t/stdout --error=o/rank.%2t/stderr p" "${two[@]}" "${d[@]}" -np 16 --output-filename o p
[ ! -e o ] || fail "--dry-run has made a folder"
prints "$local 2 --prefix-timestamp --output-filename 'o p' p" "${d[@]}" -np 2 --prefix-timestamp --output-filename "o p" p

# prterun before mpirun; all slots that were named; variables by name, so that no value is to be seen.
mpi="--map-by slot --bind-to none"
prints "prterun -n 3 -H a:2,b:1 $mpi -x PATH p" "${d[@]}" -H a:2,b p
prints "prterun -n 2 -H a:2 $mpi --output tag -x PATH p" "${d[@]}" -H a:2,b:2 -np 2 -l p
prints "env -u HALAY_JOB -u PMIX_ID B=2 prterun -n 1 -H a:1 $mpi -x B -x HALAY_SECRET -x HOME -x LD_LIBRARY_PATH -x OMP_NUM_THREADS -x PATH -x PYTHONPATH -x VIRTUAL_ENV p" \
    HALAY_JOB=none HALAY_SECRET=s HOME=/ LD_LIBRARY_PATH=l OMP_NUM_THREADS=1 OMPI_COMM=1 PYTHONPATH=. VIRTUAL_ENV=v PMIX_ID=1 OTHER=2 \
    "${d[@]}" -x B=2 -x HOME -x NOT_THERE -H a p
prints "prterun -n 1 -H a:1 -x PATH p" PRTE_MCA_hwloc_default_binding_policy=core OMPI_MCA_rmaps_base_mapping_policy=node "${d[@]}" -H a p
prints "prterun -n 1 -H a:1 $mpi --output tag,timestamp,dir=o -x PATH p" "${d[@]}" --prefix-timestamp --output-filename o -H a p
prints "prterun -n 1 -H a:1 $mpi --output dir=o -x PATH p" "${d[@]}" --output-filename o -H a p
prints "mpirun -n 1 -H a:1 $mpi --tag-output --timestamp-output --output-filename o -x PATH p" \
    "${d[@]}" --launcher mpirun --prefix-timestamp --output-filename o -H a p
prints "timeout --foreground --kill-after=10 5 mpirun -n 2 -H a:2 $mpi --tag-output -x PATH p" "${d[@]}" --launcher mpirun --timeout 5 -l -H a:2 p
prints "prterun -n 2 -H localhost:2 $mpi -x PATH p" "${d[@]}" --launcher prterun -np 2 p
prints "mpirun -n 8 $mpi -x PATH p" "${two[@]}" "${d[@]}" --launcher mpirun p # it reads Slurm's hosts itself
cp bin/prterun bin/prted # next to it: the other hosts find theirs there
prints "prterun -n 1 -H a:1 --prefix $here $mpi -x PATH p" "${d[@]}" -H a p
prints "prterun -n 1 -H localhost:1 $mpi -x PATH p" "${d[@]}" --launcher prterun -H localhost p
rm bin/prterun bin/prted
prints "mpirun -n 3 -H a:2,b:1 $mpi -x PATH p" "${d[@]}" -H a:2,b p
in_place "${d[@]}" -H a p
grep -q -- --allow-run-as-root out
[ $? = "$([ "$(id -u)" = 0 ]; echo $?)" ] || fail "--allow-run-as-root, or not"

# Host files, as Open MPI and Horovod write them.
printf '# two\na slots=2  # fast\n\n  b\tslots=3 max_slots=4\r\nc:1\nd\n' >hosts
prints "mpirun -n 7 -H a:2,b:3,c:1,d:1 $mpi -x PATH p" "${d[@]}" --hostfile hosts p
prints "mpirun -n 3 -H a:2,b:3 $mpi -x PATH p" "${d[@]}" --hostfile hosts -np 3 p # nobody asks for c and d
printf '\xef\xbb\xbflocalhost slots=4' >hosts
prints "$local 3 p" "${d[@]}" --hostfile hosts -np 3 p

# LSF: slots evenly, without the launch node; the file before the list.
lsf=(LSB_JOBID=7)
sum=("${lsf[@]}" "LSB_MCPU_HOSTS=batch1 1 n1 4 n2 4 ")
threads() {
    local cpus=0 range
    for range in $(tr ',' ' ' </sys/devices/system/cpu/cpu0/topology/thread_siblings_list); do
        cpus=$((cpus + ${range#*-} - ${range%-*} + 1))
    done
    echo $((cpus ? cpus : 1))
}
t=$(threads 2>/dev/null)
cpus() { echo "$(($1 * t))-$(($2 * t - 1))"; }
rank() { echo "rank: $1: { hostname: $2; cpu: {$(cpus "$3" "$4")} ; gpu: * ; mem: * }"; }
prints "jsrun --erf_input /dev/fd/9 -X 1 p 9<<'END'
overlapping_rs: allow
cpu_index_using: logical

$(rank 0 n1 0 1)
$(rank 1 n1 1 2)
$(rank 2 n1 2 3)

$(rank 3 n2 0 2)
$(rank 4 n2 2 4)
END" "${sum[@]}" "${d[@]}" -np 5 p
prints "jsrun --erf_input /dev/fd/9 -X 1 --stdio_mode prepended p 9<<'END'
overlapping_rs: allow
cpu_index_using: logical

$(rank 0 n2 0 2)
$(rank 1 n2 2 4)
END" "${sum[@]}" "${d[@]}" -l -H n2:4 -np 2 p
prints "jsrun --erf_input /dev/fd/9 -X 1 --stdio_mode individual --stdio_stdout o/rank.%t/stdout --stdio_stderr o/rank.%t/stderr p 9<<'END'
overlapping_rs: allow
cpu_index_using: logical

$(rank 0 n1 0 4)
END" "${sum[@]}" "${d[@]}" --output-filename o -np 1 p
[ "$(in_place "${sum[@]}" "${d[@]}" p && grep -c ^rank: out)" = 8 ] || fail "not 8 ranks in 8 slots"
printf 'n1\nn1\nn2\nn1\nn2\n' >ranks
prints "mpirun -n 5 -H n1:3,n2:2 $mpi -x PATH p" "${sum[@]}" LSB_DJOB_RANKFILE="$here/ranks" "${d[@]}" --launcher mpirun p
rm bin/jsrun
prints "mpirun -n 5 -H n1:3,n2:2 $mpi -x PATH p" "${sum[@]}" "${d[@]}" -np 5 p
prints "mpirun -n 8 -H n1:4,n2:4 $mpi -x PATH p" "${sum[@]}" LSB_DJOB_RANKFILE="$here/none" "${d[@]}" p
prints "mpirun -n 3 -H n1:1,n2:2 $mpi -x PATH p" "${lsf[@]}" "LSB_MCPU_HOSTS=n1 1 n2 2 n3 1" "${d[@]}" -H n1,n2:2 p
prints "mpirun -n 4 -H n1:1,n2:2,n3:1 $mpi -x PATH p" "${lsf[@]}" "LSB_MCPU_HOSTS=n1 1 n2 2 n3 1" "${d[@]}" p
prints "mpirun -n 2 -H n1:2 $mpi -x PATH p" "${lsf[@]}" "LSB_MCPU_HOSTS=$here_name 1 n1 2" "${d[@]}" p
prints "$local 2 p" "${lsf[@]}" "LSB_MCPU_HOSTS=$here_name 2" "${d[@]}" p
printf '#!/bin/sh\n' >bin/blaunch && chmod +x bin/blaunch
by_blaunch="env OMPI_MCA_plm_rsh_agent=blaunch PRTE_MCA_plm_ssh_agent=blaunch"
prints "$by_blaunch mpirun -n 2 -H n1:2 $mpi -x PATH p" "${lsf[@]}" "LSB_MCPU_HOSTS=$here_name 1 n1 2" "${d[@]}" p
prints "mpirun -n 2 -H n1:2 $mpi -x PATH p" OMPI_MCA_plm_rsh_agent=ssh "${lsf[@]}" "LSB_MCPU_HOSTS=$here_name 1 n1 2" "${d[@]}" p
prints "$local 2 p" "${sum[@]}" JSM_NAMESPACE_RANK=1 "${d[@]}" -np 2 p

# Each of two tasks of an srun starts one; the first of them says so.
task() { run env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS="$1" SLURM_PROCID="$2" "$HALAYRUN" -np 2 true; }
task 2 0
expect 0
says err "^halayrun: srun has started halayrun 2 times, and each starts a job of its own; for one job: srun -n RANKS --mpi=pmix PROGRAM$"
for quiet in "2 1" "1 0"; do
    # shellcheck disable=SC2086
    task $quiet
    expect 0
    [ ! -s err ] || fail "task $quiet says something"
done

# An mpiexec without PMIx uses srun to reach nodes: its ranks have the PMIx variables of that srun's tasks.
run env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 PMIX_NAMESPACE=slurm.pmix.1.0 PMIX_RANK=0 PMI_SIZE=4 PMI_RANK=2 "$JOB_RANK"
expect 1
says err "an mpiexec without PMIx and without PMI_FD announced 4 ranks, but they cannot be found: they are not the tasks of the srun that it has used\. .*; use srun --mpi=pmix, MPICH's mpiexec, or halayrun"
nothing_left
