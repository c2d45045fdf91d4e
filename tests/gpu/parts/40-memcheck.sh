# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The same under compute-sanitizer.
# limit 120
tool=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
[ -n "$tool" ] || { echo "there is no compute-sanitizer"; exit 77; }
"$tool" --tool memcheck --error-exitcode 9 "$BUILD/bin/gpu_bits"
