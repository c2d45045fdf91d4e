# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# torch: two processes train on one GPU, by DistributedDataParallel and by DistributedOptimizer.
# limit 120
why=$(timeout 60 python3 -c 'import torch, cffi; print("" if torch.cuda.is_available() else "torch has no CUDA")' 2>&1 | tail -n 1)
[ -z "$why" ] || { echo "$why"; exit 77; }
export HALAY_LIBRARY=$BUILD/lib/libhalay.so.0 PYTHONPATH=$SOURCE/python${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
for way in ddp optimizer; do
    export MASTER_PORT=$((20000 + RANDOM % 10000))
    RANK=1 LOCAL_RANK=1 python3 "$SOURCE/tests/gpu/train.py" "$way" "${TRAIN_DEVICE:-cuda:0}" &
    other=$!
    RANK=0 LOCAL_RANK=0 python3 "$SOURCE/tests/gpu/train.py" "$way" "${TRAIN_DEVICE:-cuda:0}" || exit 1
    wait $other || exit 1
done
echo "torch: both ways train as one process does"
