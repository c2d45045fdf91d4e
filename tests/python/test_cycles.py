# SPDX-License-Identifier: Apache-2.0
"""init() and shutdown() over and over in one process, with training between: nothing is left."""

import ctypes
import gc
import os
from pathlib import Path

import pytest
import torch

import halay.torch as hvd

WARM = 10  # cycles until torch, the allocator and the interpreter have what they keep
SEGMENTS = Path("/dev/shm")


def train():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), model.named_parameters()
    )
    for step in range(4):
        optimizer.zero_grad()
        model(torch.full((4, 32), float(step + hvd.rank()))).sum().backward()
        optimizer.step()
    total = hvd.allreduce(torch.arange(50000.0), op=hvd.Sum)  # by another plan than the small ones
    assert total[-1] == 49999 * hvd.size()
    assert hvd.allgather(torch.ones(1 + hvd.rank(), 3)).shape[0] == sum(range(1, hvd.size() + 1))
    assert hvd.alltoall(torch.arange(2 * hvd.size())).shape[0] == 2 * hvd.size()
    some = hvd.add_process_set(range(1, hvd.size()))
    if some.included():
        hvd.allreduce(torch.ones(3), process_set=some)
    hvd.remove_process_set(some)


def held():
    """What this process holds, when what is free is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "segments": sum("halay" in entry.name for entry in SEGMENTS.iterdir()),
    }


def rank_cycles(cycles):
    hvd.shutdown()
    samples = []
    for cycle in range(WARM + cycles + 1):
        if cycle >= WARM and (cycle - WARM) % 10 == 0:
            samples.append(held())
        if cycle < WARM + cycles:
            hvd.init()
            train()
            hvd.shutdown()
    return samples


@pytest.mark.parametrize("cycles", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_cycles_leave_nothing(job, cycles):
    """Registrations are mappings here: of the segments that ranks of a node share."""
    found = job(2, rank_cycles, cycles, own=True, timeout=120 + cycles)
    for rank, samples in enumerate(found):
        print(f"rank {rank}: {samples[0]} ... {samples[-1]}")
        first, last = samples[0], samples[-1]
        assert last["descriptors"] == first["descriptors"], samples
        assert last["threads"] == first["threads"], samples
        assert last["segments"] <= first["segments"], samples
        assert last["mappings"] <= first["mappings"] + 8, samples
        assert last["resident"] <= first["resident"] + (4 << 20), samples
