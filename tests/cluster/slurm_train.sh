#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The templates in slurm/ for training, submitted as they are: the example learns, on one node and on
# several, and ranks end with the same bits.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_torch
start_slurm 4 --cpus 4
mkdir .venv # a source tree to submit from
ln -s "$(dirname "$(dirname "$python")")"/* .venv/
ln -s "$(dirname "$(dirname "$python")")"/pyvenv.cfg .venv/ 2>/dev/null
ln -s "$source_folder/examples" "$build" .

# train TEMPLATE RANKS
train() {
    rm -f -- *.out
    batch "$source_folder/slurm/$1"
    cat -- *.out >err
    expect 0 "slurm/$1"
    says ./*.out "^ranks: *$2$"
    says ./*.out "^parameters: *bit-identical on all ranks"
    cat -- *.out
}
train train.sbatch 2
train train-nodes.sbatch 4
nothing_left 4
