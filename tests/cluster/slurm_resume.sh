#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job of resume.sbatch whose ranks get the signal: it goes back into the queue, and on from its checkpoint.
# With CLUSTER_LONG=1 only: Slurm takes its time.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "${CLUSTER_LONG:-}" ] || skip "takes two minutes: CLUSTER_LONG=1 tries it"
need_torch
start_slurm 2 --cpus 4
epochs=600
id=$(login sbatch --parsable -N2 --export="ALL,PYTHON=$python" "$source_folder/slurm/resume.sbatch" \
    "$source_folder/examples/torch_resume.py" --epochs $epochs --checkpoint "$here/saved.pt") || fail "sbatch"
until_true test -e "resume-$id.out"
ln -sf "resume-$id.out" err # shown if it fails
TRIES=1200 until_true test -e saved.pt
login scancel --signal=USR1 "$id" || fail "scancel"
TRIES=4000 until_true grep -q "^parameters: " "resume-$id.out"
cp "resume-$id.out" out
[[ $(login scontrol -o show job "$id") == *"Restarts=1 "* ]] || fail "was not put back into the queue"
seq $epochs | diff - <(sed -n 's/^epoch \([0-9]*\): loss .*/\1/p' out) || fail "an epoch twice, or not at all"
nothing_left 2
