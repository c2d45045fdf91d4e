# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Two processes on one GPU.
# limit 60
# shellcheck source=tests/gpu/job.sh
. "$SOURCE/tests/gpu/job.sh"
calls=200
[ -z "$HALAY_GPU_SHORT" ] || calls=5
for launcher in $launchers; do
    $launcher $calls || { echo "$launcher: it fails"; exit 1; }
done
echo "two processes are right: $launchers"
