# SPDX-License-Identifier: Apache-2.0
"""No launcher: torch's own way to start ranks, and ranks that are others the next time.

spawned.py FOLDER N: prints "well" if all was right.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import halay.distributed  # noqa: F401


def add(rank: int, size: int) -> None:
    data = torch.full((4,), float(rank))
    dist.all_reduce(data)
    assert dist.get_rank() == rank and data.tolist() == [size * (size - 1) / 2] * 4


def rank_of(rank: int, size: int, folder: str) -> None:
    dist.init_process_group("halay", rank=rank, world_size=size)  # MASTER_ADDR, MASTER_PORT
    add(rank, size)
    layer = torch.nn.Linear(3, 3)
    DistributedDataParallel(layer)(torch.ones(1, 3)).sum().backward()
    dist.destroy_process_group()
    store = dist.FileStore(os.path.join(folder, "store"), size)
    other = (rank + 1) % size
    dist.init_process_group("halay", store=store, rank=other, world_size=size)
    add(other, size)
    pair = dist.new_group([0, 1])
    if other < 2:
        data = torch.ones(1)
        dist.all_reduce(data, group=pair)
        assert data.item() == 2
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    with __import__("socket").socket() as one:
        one.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(one.getsockname()[1])
    mp.spawn(rank_of, args=(int(sys.argv[2]), sys.argv[1]), nprocs=int(sys.argv[2]))
    print("well")
