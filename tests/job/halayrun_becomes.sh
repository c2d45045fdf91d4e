#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halayrun becomes the launcher: its arguments, environment, exit status, signals and rank file; then
# Open MPI's mpirun in earnest.
# shellcheck source-path=SCRIPTDIR source=places_lib.sh disable=SC2016
. "$(dirname "$0")/places_lib.sh"
two=(SLURM_JOB_ID=42 SLURM_NNODES=2 "SLURM_TASKS_PER_NODE=2(x2)")
stand_ins srun mpirun

# What is printed is what is done.
args=(-l -x "A=a b" p "x y" "" "it's")
in_place "${two[@]}" -- --dry-run "${args[@]}"
(unset A && PATH="$here/bin:/usr/bin:/bin" bash ./out)
cp argv printed
in_place "${two[@]}" SLURM_HOSTFILE=f HALAY_JOB=none PMIX_SERVER=x PMIX_MCA_a=1 -- -v "${args[@]}"
expect 7 "the launcher's status"
cmp -s argv printed || fail "not as printed: $(cat argv)"
[ "$(tail -n 4 argv)" = "$(printf '%s\n' p "x y" "" "it's")" ] || fail "other words: $(cat argv)"
grep -q "^A=a b$" env || fail "no A in $(cat env)"
grep -q "^PMIX_MCA_a=1$" env || fail "no PMIX_MCA_a"
! grep -E "^(PMIX_SERVER|SLURM_HOSTFILE|HALAY_JOB)=" env || fail "the launcher gets it"
[ "$(wc -l <err)" = 1 ] || fail "-v is not one line"
says err "^halayrun: Slurm job 42 has 2 nodes: env .*srun --mpi=pmix .* -n4 "

# A value that no command line may show, and one with all that shells and launchers stumble over.
odd=$'1;2,3 "4" \x27 $5\n6'
in_place HALAY_SECRET=hidden -- -H a:2 -x "ODD=$odd" p
expect 7
! grep -q -e hidden -e '$5' argv || fail "values among the arguments"
[[ "$(cat env)" == *"ODD=$odd"* ]] || fail "ODD is another in $(cat env)"

# A signal is the launcher's; 124 after --timeout.
printf '#!/bin/bash\ntrap "exit 9" TERM\n/usr/bin/touch ready\nwhile :; do /usr/bin/sleep 0.02; done\n' >bin/srun
/usr/bin/env -i PATH="$here/bin" "${two[@]}" "$HALAYRUN" p &
pid=$!
until_true test -e ready
kill -TERM $pid
wait $pid
[ $? = 9 ] || fail "the signal did not reach the launcher"
run env PATH="$here/bin:$PATH" "${two[@]}" "$HALAYRUN" --timeout 1 p
expect 124 --timeout

# Ten thousand hosts are in a file, which is there for srun and nowhere else.
printf '#!/bin/bash\n/usr/bin/cat "$SLURM_HOSTFILE" >ranks\necho "${#*}" >bytes\n' >bin/srun
chmod +x bin/srun
seq -f 'node%05.0f slots=4' 10000 >hosts
in_place "${two[@]}" -- --hostfile hosts --output-filename kept -np 3 p
expect 0 "three ranks on one of ten thousand hosts"
[ "$(ls kept)" = $'rank.0\nrank.1\nrank.2' ] || fail "the folders are $(ls kept)"
in_place "${two[@]}" -- --hostfile hosts p
expect 0 "ten thousand hosts"
seq -f 'node%05.0f' 10000 | sed 'p;p;p' | cmp - ranks || fail "not four ranks on each host"
[ "$(cat bytes)" -lt 500 ] || fail "srun's command line has $(cat bytes) bytes"
printf '#!/bin/bash\n[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit\necho "${#*}" >bytes\nwhile [ "$1" != --hostfile ]; do shift; done\n/usr/bin/cat "$2" >ranks\n' >bin/mpirun
in_place -- --hostfile hosts p
expect 0 "ten thousand hosts for mpirun"
cmp hosts ranks || fail "other hosts than named"
[ "$(cat bytes)" -lt 500 ] || fail "mpirun's command line has $(cat bytes) bytes"

# The rank file is there for jsrun and its helpers, and nowhere else.
printf '#!/bin/bash\necho "$@" >argv\n(/usr/bin/cat "$2" >ranks)\n' >bin/jsrun
chmod +x bin/jsrun
in_place LSB_JOBID=7 "LSB_MCPU_HOSTS=b 1 n1 4 n2 4" -- p
expect 0 jsrun
grep -q "^--erf_input /proc/[0-9]*/fd/[0-9]* -X 1 p$" argv || fail "jsrun $(cat argv)"
[ "$(grep -c '^rank: [0-7]: { hostname: n[12]; cpu: {' ranks)" = 8 ] || fail "not 8 ranks: $(cat ranks)"
nothing_left

command -v mpirun >/dev/null || { echo "skipped from here: no mpirun (Debian: openmpi-bin)"; exit 0; }
mpirun --version 2>/dev/null | grep -q 'Open MPI' || { echo "skipped from here: mpirun is not Open MPI's"; exit 0; }
run "$HALAYRUN" --launcher mpirun -H localhost:2 "$JOB_RANK"
expect 0 "two ranks by mpirun"
for r in 0 1; do says out "^rank $r of 2, pmix (mpirun), shm$"; done
run "$HALAYRUN" --launcher mpirun -np 4 -l -x A=1 sh -c 'echo "rank $PMIX_RANK has $A"; exit $((PMIX_RANK / 3 * 5))'
expect 5 "the status of mpirun's rank 3"
says out "1,3\]<stdout>: *rank 3 has 1$"
run "$HALAYRUN" --launcher mpirun -x "ODD=$odd" -x A=1 -np 1 sh -c 'printf "%s" "$ODD"'
[ "$(cat out)" = "$odd" ] || fail "mpirun's rank has another ODD"
nothing_left
