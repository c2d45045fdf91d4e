# SPDX-License-Identifier: Apache-2.0
"""DataLoader workers, forked children that end in every way, and many inits in one process."""

import os
import signal
import sys

import pytest
import torch
from conftest import RANKS
from torch.utils.data import DataLoader, Dataset

import halay.torch as hvd


class Asking(Dataset):
    """Each item is what a worker process gets from Halay."""

    def __len__(self):
        return 16

    def __getitem__(self, index):
        try:
            hvd.allreduce(torch.ones(1))
        except hvd.HalayForked:
            return index, os.getpid()
        return -1, os.getpid()


def check_allreduce():
    assert hvd.allreduce(torch.ones(1000), op=hvd.Sum).eq(hvd.size()).all()


def rank_data_loader():
    for persistent in (False, True):
        loader = DataLoader(
            Asking(),
            batch_size=2,
            num_workers=2,
            multiprocessing_context="fork",
            persistent_workers=persistent,
        )
        for _ in range(2):
            indices, pids = [], set()
            for index, pid in loader:
                check_allreduce()
                indices += index.tolist()
                pids |= set(pid.tolist())
            assert indices == list(range(16))
            assert len(pids) == 2 and os.getpid() not in pids
    check_allreduce()


def leave(way):
    if way == "exit":
        sys.exit(5)
    if way == "_exit":
        os._exit(5)
    if way == "raise":
        raise KeyError("as a child may")
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "drop":
        hvd.shutdown()


def rank_children():
    """sys.exit and exceptions run the child's atexit functions: they must not end the job."""
    handle = hvd.allreduce_async(torch.ones(3), name="out", op=hvd.Sum)
    for way in ("exit", "_exit", "raise", "kill", "drop", "return"):
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                leave(way)
            except hvd.HalayForked:
                sys.exit(7)
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        expected = {"kill": -signal.SIGKILL, "drop": 7, "return": 0, "raise": 1}.get(way, 5)
        assert status == expected, (way, status)
        check_allreduce()
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 3


def rank_processes():
    rank_data_loader()
    rank_children()


def test_forked_children(job):
    job(2, rank_processes)


def rank_cycles(cycles):
    rank, size = hvd.rank(), hvd.size()
    counts = []
    for cycle in range(cycles):
        hvd.barrier()
        hvd.shutdown()
        assert not hvd.is_initialized()
        with pytest.raises(hvd.NotInitialized):
            hvd.rank()
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (rank, size)
        check_allreduce()
        assert hvd.broadcast_object(cycle, size - 1) == cycle
        counts.append((len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
    return counts


@pytest.mark.parametrize("nranks", RANKS)
def test_init_and_shutdown_cycles(job, nranks):
    for counts in job(nranks, rank_cycles, 20):
        # A connection that is being made has two descriptors more for a moment: the least counts.
        for early, late in zip(zip(*counts[4:9]), zip(*counts[-5:])):
            assert min(late) <= min(early), counts


def rank_two_jobs_in_turn():
    """An optimizer that was made before a re-init goes on after it."""
    model = torch.nn.Linear(3, 2)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.full((1, 3), float(hvd.rank()))).sum().backward()
        optimizer.step()
        hvd.barrier()
        hvd.shutdown()
        hvd.init()
    weights = hvd.allgather(model.weight.detach().unsqueeze(0))
    assert all(torch.equal(w, weights[0]) for w in weights)


def test_optimizer_survives_reinit(job):
    job(2, rank_two_jobs_in_turn)
