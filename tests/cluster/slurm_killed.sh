#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of one task: the others are told within a second who it was and where, on its node and on the
# other; Slurm leaves them alone, they live on and end by themselves.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 2 --cpus 4
hosts=(n1 n1 n2 n2)

# killed VICTIM
killed() {
    local victim=$1 host=${hosts[$1]} pid at told
    rm -f out # the last one's
    login timeout -k 5 40 srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 --unbuffered "$rank" wait "$victim" \
        >out 2>err </dev/null &
    until_true grep -q "^victim: " out
    sleep 0.3 # the others are in their call
    pid=$(sed -n 's/^victim: .* process //p' out) # as its node counts
    at=$(date +%s%3N)
    on "${host#n}" kill -KILL "$pid" || fail "kill of $pid on $host"
    wait $!
    status=$?
    expect 137 "srun, of which rank $victim was killed" # of all, the highest
    counts out 3 "^told "
    counts out 3 "about rank $victim on $host:"
    counts out 3 "lived on$"
    while read -r _ told _; do
        echo "rank $victim killed: told after $((told - at)) ms"
        [ $((told - at)) -lt 1000 ] || fail "told after $((told - at)) ms"
    done < <(grep "^told " out)
    counts err 1 "task $victim: Killed"
    says err "Exited with exit code 4"
    counts err 0 "exit code [^4]"
    nothing_left 2
}
for victim in 3 0 1; do killed $victim; done
