#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Slurm test-bed itself: it comes up in a second or two, runs and cuts, ends with all that ran in
# it, also when the test that started it is killed, and leaves nothing behind.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"

# A test that is killed while a job runs: `testbed.sh victim` is it.
if [ "${1:-}" = victim ]; then
    start_slurm 2
    echo "$here" >"$2"
    login srun -N2 -n2 sleep "1000.$3"
    exit
fi

begin=$(date +%s%3N)
start_slurm 3 --cpus 2
echo "three nodes after $(($(date +%s%3N) - begin)) ms"
[ "$(login srun -N3 -n6 --mpi=pmix bash -c 'echo $PMIX_RANK' | sort -n | xargs)" = "0 1 2 3 4 5" ] ||
    fail "six ranks on three nodes"
run login srun -n1 bash -c 'exit 7'
expect 7 "a task that ends with 7"
[ "$(on 2 hostname)" = n2 ] || fail "node 2 has another name: $(on 2 hostname)"
talks() { login timeout 1 bash -c ': </dev/tcp/n2/6818' 2>/dev/null; }
for how in down drop; do
    slurm partition 2 $how
    ! talks || fail "a node that is cut off ($how) answers"
    slurm partition 2 up
    until_true talks
done
slurm crash 3
! on 3 true 2>/dev/null || fail "a crashed node lives"
slurm boot 3
[ "$(on 3 hostname)" = n3 ] || fail "node 3 has not come back"
touch /dev/shm/hly.$$
on 1 test ! -e /dev/shm/hly.$$ || fail "a node sees this machine's /dev/shm"
rm /dev/shm/hly.$$
slurm up --nodes 3 2>/dev/null || fail "up is not idempotent"

bash "$0" victim "$here/victim" "$mark" >/dev/null 2>&1 &
victim=$!
until_true test -s victim
until_true pgrep -f "sleep 1000[.]$mark"
kill -KILL $victim
wait $victim 2>/dev/null
gone() { [ ! -e "$(cat victim)" ]; }
until_true gone
! pgrep -f "sleep 1000[.]$mark" >/dev/null || fail "a job outlives its test-bed"

pids=$(cat "$HALAY_TESTBED"/*.pid | cut -d' ' -f1)
slurm down || fail "down: exit status $?"
[ ! -e "$HALAY_TESTBED" ] || fail "down leaves its state"
dead() { ! lives "$1"; }
for pid in $pids; do until_true dead "$pid"; done
