#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# visible.sh BUILD: ranks whose CUDA_VISIBLE_DEVICES differ, over the double: right sums, or where a
# rank has no GPU, one error on all ranks.
set -uo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "visible: $*" >&2; cat "$out/log" >&2; exit 1; }
export BUILD=$1 LD_LIBRARY_PATH=$1/double CUDA_DOUBLE="devices=4 delay_us=0" HALAY_NCCL_LIBRARY=off

# job STATUS VISIBLE VISIBLE: of rank 0 and of rank 1
job() {
    # shellcheck disable=SC2016
    one=$2 other=$3 timeout 60 "$BUILD/bin/halayrun" -np 2 bash -c 'export CUDA_VISIBLE_DEVICES=$one
        [ "$PMIX_RANK" = 0 ] || CUDA_VISIBLE_DEVICES=$other
        "$BUILD/bin/gpu_process" 3; echo "$PMIX_RANK ends with $?"' >"$out/log" 2>&1 || fail "the job of '$2' and '$3' fails"
    for rank in 0 1; do
        grep -q "$rank ends with $1\$" "$out/log" || fail "'$2' and '$3': rank $rank"
    done
}
job 0 0 1
job 0 1 0
job 0 2 2
job 0 3,0 1,2,3
job 0 0,9,1 3
job 5 0 ""
for rank in 0 1; do
    grep -q "process: rank $rank: the first call: " "$out/log" || fail "rank $rank does not say it"
done
[ "$(grep -o 'the first call: .*' "$out/log" | sort -u | wc -l)" = 1 ] || fail "two errors"
# Rank 1 says it, too, if rank 0 has left already when rank 1 concludes.
grep -q 'rank 0 on .* in memory of a GPU, sum; rank 1 on .* of [0-9]* int32, sum' "$out/log" ||
    fail "no rank says for both whose memory is a GPU's"
