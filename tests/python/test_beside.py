# SPDX-License-Identifier: Apache-2.0
"""halay.torch and a process group in one process: communicators of one context."""

import pytest
import torch
import torch.distributed as dist
from distributed_job import well
from torch.nn.parallel import DistributedDataParallel


def steps(hvd, n=20):
    """Gradients by DDP, with calls of halay.torch under way meanwhile; the sums are exact."""
    rank, layer = dist.get_rank(), torch.nn.Linear(4, 2, dtype=torch.double)
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.bias.fill_(0)
    module = DistributedDataParallel(layer, bucket_cap_mb=1e-5)
    for step in range(n):
        early = hvd.allreduce_async(torch.tensor([step + rank]), op=hvd.Sum, name="early")
        layer.zero_grad()
        module(torch.full((1, 4), 2.0 * rank, dtype=torch.double)).sum().backward()
        assert layer.weight.grad.eq(1).all() and layer.bias.grad.eq(1).all()
        assert hvd.synchronize(early).item() == 2 * step + 1
        assert hvd.allgather(torch.tensor([rank]), name="ranks").tolist() == [0, 1]


def rank_beside(order):
    """Whichever is initialized first, whichever ends first, and twice."""
    import halay.torch as hvd

    for last in ("hvd", "dist"):
        if order == "hvd":
            dist.destroy_process_group()
            hvd.init()
            dist.init_process_group("halay", init_method="halay://")
        else:
            hvd.init()
        steps(hvd)
        if last == "dist":
            hvd.shutdown()
            value = torch.ones(1)
            dist.all_reduce(value)
        else:
            dist.destroy_process_group()
            value = hvd.allreduce(torch.ones(1), op=hvd.Sum)
            hvd.shutdown()
            dist.init_process_group("halay", init_method="halay://")
        assert value.item() == 2


@pytest.mark.parametrize("order", ["dist", pytest.param("hvd", marks=pytest.mark.long)])
def test_beside(tmp_path, order):
    well(tmp_path, 2, rank_beside, order)
