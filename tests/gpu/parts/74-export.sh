# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# dma-bufs of the GPU's memory. That an adapter takes them needs an adapter.
# limit 30
"$BUILD/bin/gpu_export"
