# SPDX-License-Identifier: Apache-2.0
"""The same for a library of Python, which has no way to go on: faults_rank.py gloo|horovod."""

import os
import sys
import time

import torch

torch.set_num_threads(1)
one = torch.ones(1, dtype=torch.int64)
if sys.argv[1] == "gloo":
    import datetime

    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", rank=rank, timeout=datetime.timedelta(seconds=30))

    def call() -> None:
        dist.all_reduce(one)
else:
    import horovod.torch as hvd

    hvd.init()
    rank = hvd.rank()

    def call() -> None:
        hvd.allreduce(one, op=hvd.Sum, name="one")


sys.stdout.write(f"rank {rank} pid {os.getpid()} begins\n")  # in one piece: others write there, too
sys.stdout.flush()
try:
    while True:
        call()
except Exception as error:
    text = " ".join(str(error).split())
    sys.stdout.write(f"rank {rank} told at {time.monotonic():.6f}: {text}\n")
    sys.stdout.flush()
    os._exit(4)
