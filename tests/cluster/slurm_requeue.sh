#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The node with the head of a job of elastic.sbatch crashes: the agents on the other node end, Slurm requeues the job, and the
# training goes on from its checkpoint on the nodes that are left. With CLUSTER_LONG=1 only: Slurm takes its time.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "${CLUSTER_LONG:-}" ] || skip "takes about a minute: CLUSTER_LONG=1 tries it"
need_torch
start_slurm 3 --cpus 2
ln -s "$build" build # a source tree to submit from
ln -s "$source_folder/slurm" slurm
epochs=400
seen() { sed -n 's/^epoch \([0-9]*\) on 4 ranks: loss .*/\1/p' "elastic-$id.out"; }
trains() { [ "$(seen | wc -l)" -ge "$1" ]; }
has_restarted() { [[ $(login scontrol -o show job "$id") == *"Restarts=1 "* ]]; }
runs() { [[ $(login scontrol -o show job "$id") == *"JobState=RUNNING "* ]]; }
is_clean() { on 2 bash -c '! pgrep -a "python|halay"'; }
# within_s SECONDS COMMAND...
within_s() {
    local end=$((SECONDS + $1))
    until "${@:2}" >/dev/null 2>&1; do
        cp "elastic-$id.out" err
        [ $SECONDS -le $end ] || fail "not within $1 s: ${*:2}; $(login scontrol -o show job "$id")"
        sleep 0.1
    done
}

id=$(login sbatch --parsable -N2 --ntasks-per-node=2 slurm/elastic.sbatch \
    "$python" "$source_folder/examples/torch_elastic.py" --epochs $epochs --checkpoint "$here/saved") || fail "sbatch"
until_true test -e "elastic-$id.out"
within_s 60 trains 3
[[ $(login squeue -h -j "$id" -o %N) == n\[1-2\] ]] || fail "not on n1 and n2: $(login squeue -h -j "$id" -o %N)"

crashed=$SECONDS
slurm crash 1 >out 2>&1 || fail "crash"
within_s 30 is_clean
echo "no process is left on node 2 after $((SECONDS - crashed)) s"
before=$(seen | tail -1)
within_s 150 has_restarted
within_s 60 runs
echo "runs again after $((SECONDS - crashed)) s, on $(login squeue -h -j "$id" -o %N)"
count=$(seen | wc -l)
within_s 60 trains $((count + 2))
first=$(seen | sed -n "$((count + 1))p")
echo "goes on with epoch $first, after epoch $before, $((SECONDS - crashed)) s after the crash"
[ $((first - before)) = 0 ] || [ $((first - before)) = 1 ] || fail "epoch $first, not that after $before"
[ "$(stat -c %a "halay-$id.head")" = 600 ] || fail "others can read halay-$id.head"
login scancel "$id"
nothing_left_on_2() { clean_node 2 && clean_node 3; }
within_s 30 nothing_left_on_2
