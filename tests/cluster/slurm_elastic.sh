#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job whose ranks change under Slurm, by the templates as they are: a node crashes, and the others go on. It comes back, and
# its ranks with it. With CLUSTER_LONG=1 it is away until Slurm has taken it out of the job: then a job of agents, which has
# waited for a node, brings it back.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 3 --cpus 2
ln -s "$build" build # a source tree to submit from
ln -s "$source_folder/slurm" slurm
job_elastic=build/bin/job_elastic

submit() { login sbatch --parsable --ntasks-per-node=2 "$@" || fail "sbatch $*: exit status $?"; }
worlds() { sed -n 's/.*a world of \([0-9]*\) from.*/\1/p' "elastic-$id.out" | tr '\n' ' '; }
last_is() { [[ $(worlds) == *"$1 " ]]; }
state() { login scontrol -o show job "$1" | sed 's/.*JobState=\([A-Z]*\).*/\1/'; }
has_ended() { [[ $(state "$1") =~ COMPLETED|FAILED|CANCELLED ]]; }
is_over() { [ "$(state "$1")" = COMPLETED ]; }
is_down() { [[ $(login sinfo -h -N -n n3 -o %t) == down* ]]; }
is_back() { [ "$(login sinfo -h -N -n n3 -o %t)" = idle ] || [ "$(state "$more")" = RUNNING ]; }
# within_s SECONDS COMMAND...
within_s() {
    local end=$((SECONDS + $1))
    until "${@:2}" >/dev/null 2>&1; do
        cp "elastic-$id.out" err
        [ $SECONDS -le $end ] || fail "not within $1 s: ${*:2}; worlds of $(worlds)"
        sleep 0.1
    done
}

id=$(submit -N3 slurm/elastic.sbatch "$job_elastic" 1000000)
until_true test -e "elastic-$id.out"
within_s 30 last_is 6
[ "$(stat -c %a "halay-$id.head")" = 600 ] || fail "others can read halay-$id.head"
more=$(submit -N1 slurm/agents.sbatch "halay-$id.head" "$job_elastic" 1000000)

crashed=$(date +%s%3N)
slurm crash 3 >out 2>&1 || fail "crash"
within_s 15 last_is 4
echo "goes on without node 3 after $(($(date +%s%3N) - crashed)) ms"
[ "$(state "$more")" = PENDING ] || { cp "agents-$more.out" err && fail "the job of agents does not wait: $(state "$more")"; }
[ -z "${CLUSTER_LONG:-}" ] || within_s 120 is_down
slurm boot 3 >out 2>&1 || fail "boot"
[ -z "${CLUSTER_LONG:-}" ] || within_s 60 is_back
back=$(date +%s%3N)
within_s 60 last_is 6
echo "goes on with node 3 after $(($(date +%s%3N) - back)) ms"
if [ -n "${CLUSTER_LONG:-}" ]; then # told to leave, as by preemption, they do
    login scancel --signal=TERM "$more" 2>err || fail "scancel"
    within_s 20 last_is 4
    within_s 20 has_ended "$more"
    counts "agents-$more.out" 2 "left after"
else
    login scancel "$more"
fi

touch over
within_s 20 is_over "$id"
[ ! -e "halay-$id.head" ] || fail "halay-$id.head is left"
counts "elastic-$id.out" "$([ -n "${CLUSTER_LONG:-}" ] && echo 4 || echo 6)" "ended after"
nothing_left 3
