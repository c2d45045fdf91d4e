# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# torch: tests/python's own functions, with tensors on the GPU; two processes.
# limit 150
why=$(timeout 60 python3 -c 'import torch, cffi, pytest; print("" if torch.cuda.is_available() else "torch has no CUDA")' 2>&1 | tail -n 1)
[ -z "$why" ] || { echo "$why"; exit 77; }
export HALAY_LIBRARY=$BUILD/lib/libhalay.so.0 PYTHONPATH=$SOURCE/python${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 HALAY_DEADLINE=20
failed=0
for way in distributed training; do
    export MASTER_PORT=$((20000 + RANDOM % 10000))
    RANK=1 LOCAL_RANK=1 python3 "$SOURCE/tests/gpu/surface.py" "$way" cuda:0 &
    other=$!
    RANK=0 LOCAL_RANK=0 python3 "$SOURCE/tests/gpu/surface.py" "$way" cuda:0 || failed=1
    wait $other || failed=1
done
[ $failed = 0 ] || exit 1
echo "torch: the functions of tests/python are right on the GPU"
