# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Two processes on one GPU.
# limit 60
# shellcheck source=tests/gpu/job.sh
. "$SOURCE/tests/gpu/job.sh"
calls=200
[ -z "$HALAY_GPU_SHORT" ] || calls=40
export HALAY_EXPLAIN=1 HALAY_NCCL_LIBRARY=own:1
way="staged"
for launcher in $launchers; do
    $launcher $calls >"$OUT/processes.txt" 2>&1 || { cat "$OUT/processes.txt"; echo "$launcher: it fails"; exit 1; }
    cat "$OUT/processes.txt"
    ! grep -q "by Halay's kernels" "$OUT/processes.txt" || way="at last by Halay's kernels"
done
echo "two processes are right, $way: $launchers"
