# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Times of the device.
# limit 60
if [ -n "$HALAY_GPU_SHORT" ]; then "$BUILD/bin/gpu_times" 1 3; else "$BUILD/bin/gpu_times"; fi
