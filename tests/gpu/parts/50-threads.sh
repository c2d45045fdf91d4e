# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Threads as ranks: all collectives, staged.
# limit 150
ranks="2 3"
[ -z "$HALAY_GPU_SHORT" ] || ranks=1
for n in $ranks; do
    "$BUILD/bin/test_ranks_cuda" cuda "$n" || exit 1
done
[ -n "$HALAY_GPU_SHORT" ] || "$BUILD/bin/test_ranks_cuda" cuda-nodes 4 || exit 1
echo "threads as ranks: right"
