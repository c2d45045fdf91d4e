# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# One of two processes is killed in the midst of calls; the other has a verdict before its deadline.
# limit 60
# shellcheck source=tests/gpu/job.sh
. "$SOURCE/tests/gpu/job.sh"
export HALAY_NCCL_LIBRARY=own:1
times="3 10 31 100 310"
[ -z "$HALAY_GPU_SHORT" ] || times=30
for launcher in $launchers; do
    for ms in $times; do
        $launcher 1000000 1 "$ms" >"$OUT/kill.txt" 2>&1
        cat "$OUT/kill.txt"
        grep -q "process: rank 0 was told" "$OUT/kill.txt" || {
            echo "$launcher: rank 1 was killed after $ms ms, and rank 0 was not told"
            exit 1
        }
    done
done
echo "killed after $times ms, the other was told: $launchers"
