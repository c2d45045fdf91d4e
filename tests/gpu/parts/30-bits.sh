# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# All kernels against the host's.
# limit 90
"$BUILD/bin/gpu_bits"
