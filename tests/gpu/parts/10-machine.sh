# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What is there, and what is not.
# limit 60
for tool in nvidia-smi nvcc ptxas compute-sanitizer cmake ninja gcc python3; do
    echo "$tool: $(command -v $tool || echo missing)"
done
if command -v nvidia-smi >/dev/null; then
    nvidia-smi || true
    nvidia-smi --query-gpu=name,driver_version,compute_mode,mig.mode.current,pci.bus_id --format=csv || true
fi
cat /proc/driver/nvidia/version 2>/dev/null
ls /dev/nvidia* /dev/infiniband 2>/dev/null
ls -d /sys/module/nvidia_peermem 2>/dev/null
timeout 30 python3 -c 'import torch; print("torch", torch.__version__, torch.cuda.is_available(), torch.cuda.nccl.version())' 2>&1 | tail -1
timeout 10 python3 -c 'import ctypes; v = ctypes.c_int(); ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(v)); print("NCCL", v.value)' 2>&1 | tail -1
[ -n "$DRIVER" ] || { echo "there is no libcuda.so.1"; exit 1; }
echo "driver: $(readlink -f "$DRIVER")"
