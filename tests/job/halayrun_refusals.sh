#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hosts, host files and launchers that cannot be: one line with the reason, and nothing is started.
# shellcheck source-path=SCRIPTDIR source=places_lib.sh
. "$(dirname "$0")/places_lib.sh"
stand_ins srun mpirun

# More ranks than room, and contradictions.
refuses 2 "-np 5 is more than the 4 slots of the 2 hosts: give them more (-H host:slots" -- -H a:2,b:2 -np 5 p
refuses 2 "-np 2 is more than the 1 slot of the 1 host" -- -H localhost -np 2 p
refuses 2 "must be a whole number from 1 to 1024, not '2048', on one machine" -- -H localhost:2048 p
refuses 2 "must be a whole number from 1 to 1024, not '1025', on one machine" -- -np 1025 p
refuses 2 "-H and --hostfile both" -- -H a --hostfile f p
refuses 2 "-H was given twice" -- -H a --host b p
refuses 2 "--launcher local starts ranks on this machine only" -- --launcher local -H a:2 p
refuses 2 "--launcher must be local, srun, jsrun, prterun or mpirun, not 'ssh'" -- --launcher ssh -np 2 p
refuses 2 "say what to run" -- -H a:2
refuses 2 "-x takes NAME=VALUE, not 'A,B'" -- -x A,B -np 1 p
for bad in "" "=a" "A B=a" " A=a" "A =a" "$(printf 'A\tB=a')" "A B"; do
    refuses 2 "-x takes NAME=VALUE, not '$bad'" -- -x "$bad" -np 1 p
done
refuses 2 "export HALAY_SECRET, and give -x HALAY_SECRET" -- -x HALAY_SECRET=shown -np 1 p
refuses 2 "--gloo is an option of horovodrun: start with that, or python -m halay.horovod" -- --gloo -np 1 p
refuses 2 "--no-stall-check is an option of horovodrun" -- -np 1 --no-stall-check p
refuses 2 "there is no option --nonsense" -- --nonsense p
refuses 2 "--output-filename takes the name of a folder" -- -np 1 --output-filename "" p
refuses 2 "--output-filename was given twice" -- -np 1 --output-filename a --output-filename b p
refuses 125 "--output-filename: cannot make '/proc/nothing': No such file" -- -np 1 --output-filename /proc/nothing /bin/true
for name in a:b a,b 'a%b'; do
    refuses 2 "--output-filename '$name': %, comma and colon mean something to srun" -- --launcher srun -np 1 --output-filename $name p
done

# Hosts. Nothing that a launcher would take for an option, or for two hosts.
for bad in "" "," "a," ",a" "a b" "-x" "a/b" "a;b" "$(printf 'a%.0s' {1..256})"; do
    refuses 2 "is no host name" -- -H "$bad" p
done
for bad in a: a:0 a:-1 a:x a:2x "a: 2" a:2:3 a:99999999999999999999 a:1048577; do
    refuses 2 "-H .*'$bad' does not say how many slots" -- -H "$bad" p
done

# Host files.
refuses 2 "cannot read the host file 'missing': No such file" -- --hostfile missing p
refuses 2 "cannot read the host file '/': Is a directory" -- --hostfile / p
: >empty
refuses 2 "the host file 'empty' names no host" -- --hostfile empty p
# line NUMBER TEXT LINE...
line() {
    printf '%s\n' "${@:3}" >hosts
    refuses 2 "hosts:$1: $2" -- --hostfile hosts p
}
line 2 "'slots=x' does not say how many slots" "a slots=2" "b slots=x"
line 3 "'slots=' does not" "# a comment" "" "b slots="
line 1 "'slot=2' is not understood; a line is a host and slots=N" "a slot=2"
line 1 "'slots=2' is no host name" "slots=2"
line 2 "'-x' is no host name" "a" "-x slots=2"
line 1 "'c' is not understood" "b slots=2 c"
line 1 "'max_slots=0' does not" "b max_slots=0"
line 1 "'a\{63\}' is no host name" "$(printf 'a%.0s' {1..100000})"
line 2 "'=' is not understood" "a" "b slots=2 = 3"
printf 'a slots=2\nb slots=2\n' >hosts
refuses 2 "-np 5 is more than the 4 slots of the 2 hosts: give them more (slots=N in the host file" -- --hostfile hosts -np 5 p

# Launchers that are not there, or are not what they are called.
two=(SLURM_JOB_ID=42 SLURM_NNODES=2 "SLURM_TASKS_PER_NODE=4(x2)")
stand_in mpirun "HYDRA build details:"
refuses 127 "mpirun on PATH is not Open MPI's.*HYDRA build" -- -H a:2 p
rm bin/*
refuses 127 "there is neither prterun nor mpirun on PATH: install Open MPI.*openmpi-bin.*Slurm" -- -H a:2 p
refuses 127 "Slurm job 42 has 2 nodes: there is no srun on PATH" "${two[@]}" -- p
for name in srun prterun mpirun; do
    refuses 127 "--launcher $name: there is no $name on PATH" -- --launcher $name -np 2 p
done
refuses 127 "there is no jsrun on PATH" LSB_JOBID=7 "LSB_MCPU_HOSTS=n1 2 n2 2" -- --launcher jsrun p
refuses 2 "jsrun works in an LSF job only" -- --launcher jsrun -np 2 p

# LSF.
lsf() { refuses 2 "$1" LSB_JOBID=7 "${@:2}" -- p; }
lsf "cannot read LSB_DJOB_RANKFILE (missing): No such file" LSB_DJOB_RANKFILE=missing
for bad in "n1" "n1 two" "n1 2 n2" "n1 0" "n1 -1" "-x 2" "n1 1048577" "n1 1048576 n1 1"; do
    lsf "LSB_MCPU_HOSTS of this LSF job is not understood; name the hosts" "LSB_MCPU_HOSTS=$bad"
done
printf 'n1\n-x\n' >ranks
lsf "LSB_DJOB_RANKFILE of this LSF job is not understood" LSB_DJOB_RANKFILE=ranks
stand_ins mpirun
refuses 2 "-np 9 is more than the 8 slots of the 2 hosts: give them more (bsub -n)" LSB_JOBID=7 \
    "LSB_MCPU_HOSTS=b 1 n1 4 n2 4" -- -np 9 p
nothing_left
