# SPDX-License-Identifier: Apache-2.0
"""Tensors without a name: replayed as named ones are, and never reduced with another call's."""

import threading

import pytest
import torch
from conftest import ODD_RANKS, RANKS

import halay.torch as hvd
from halay import _session
from halay._core import ffi, lib
from halay.errors import HalayMismatch

WARM, STEPS = 24, 16  # what repeats within a step is found out


def counters():
    found = ffi.new("halay_trainer_counters_t *")
    found.size = ffi.sizeof("halay_trainer_counters_t")
    assert lib.halay_trainer_counters(_session.session().members[0].trainer, found) == 0
    return found


def of_all(value, *shape):
    """What all ranks' tensors add up to if rank r's is full of (r + 1) * value."""
    return torch.full(shape, float(value * sum(range(1, hvd.size() + 1))))


def mine(value, *shape):
    return torch.full(shape, float(value * (hvd.rank() + 1)))


def check(found, value):
    assert torch.equal(found, of_all(value, *found.shape)), (found, value)


def plain(step):
    check(hvd.allreduce(mine(step, 3), op=hvd.Sum), step)


def several(step):
    check(hvd.allreduce(mine(step, 3), op=hvd.Sum), step)
    check(hvd.allreduce_(mine(step + 1, 3), op=hvd.Sum), step + 1)
    check(hvd.allreduce(mine(step + 2, 2, 2), op=hvd.Sum), step + 2)


def at_once(step):
    """Out together, and waited for in an order of each rank's own."""
    handles = [hvd.allreduce_async(mine(step + i, 4), op=hvd.Sum) for i in range(5)]
    for i in sorted(range(5), key=lambda i: (i * (hvd.rank() + 2)) % 5):
        check(hvd.synchronize(handles[i]), step + i)


def mixed(step):
    handles = [hvd.allreduce_async(mine(step, 8), name=f"w{i}", op=hvd.Sum) for i in range(4)]
    loss = hvd.allreduce_async(mine(step + 9, 1), op=hvd.Sum)
    for handle in handles:
        check(hvd.synchronize(handle), step)
    check(hvd.synchronize(loss), step + 9)
    check(hvd.allreduce(mine(step + 5, 2), op=hvd.Sum), step + 5)


def kinds(step):
    rows = 1 + (step + hvd.rank()) % 3
    gathered = hvd.allgather(torch.full((rows, 2), float(hvd.rank() + step)))
    expected = [r + step for r in range(hvd.size()) for _ in range(1 + (step + r) % 3)]
    assert gathered[:, 0].tolist() == expected
    assert hvd.broadcast(torch.tensor([hvd.rank(), step]), 1).tolist() == [1, step]
    dealt = hvd.alltoall(torch.arange(hvd.size()) + 10 * hvd.rank() + step)
    assert dealt.tolist() == [10 * r + hvd.rank() + step for r in range(hvd.size())]
    for found in hvd.grouped_allreduce([mine(step, 2), mine(step + 1, 3)], op=hvd.Sum):
        check(found, step + (found.numel() == 3))
    hvd.barrier()


def adasum(step):
    """It has numbers of its own."""
    check(hvd.allreduce(mine(step, 3), op=hvd.Sum), step)
    same = torch.full((3,), float(step + 1))
    out = hvd.allreduce_async(same, op=hvd.Adasum)
    check(hvd.allreduce(mine(step, 3), op=hvd.Sum), step)
    torch.testing.assert_close(hvd.synchronize(out), same)


def gradient(step):
    x = mine(step, 3).requires_grad_()
    hvd.allreduce(x, op=hvd.Sum).sum().backward()
    check(hvd.allreduce(mine(step, 1), op=hvd.Sum), step)
    assert x.grad.tolist() == [hvd.size()] * 3


def rank_replayed():
    for body in (plain, several, at_once, mixed, kinds, adasum, gradient):
        hvd.shutdown()
        hvd.init()
        for step in range(WARM):
            body(step)
        before = counters()
        for step in range(WARM, WARM + STEPS):
            body(step)
        after = counters()
        assert after.control_rounds == before.control_rounds, body.__name__
        assert after.voids == before.voids, body.__name__


@pytest.mark.parametrize("nranks", RANKS)
def test_replayed(job, nranks):
    job(nranks, rank_replayed)


def rank_deviates():
    ours = hvd.rank() == hvd.size() - 1
    for step in range(60):
        mixed(step)
        if step % 7 == 3:  # all ranks take this branch
            plain(step)
        if step % 20 == 10:  # another shape on one rank: all are told, and it goes on
            with pytest.raises(HalayMismatch, match=r"allreduce.noname.\d+"):
                hvd.allreduce(torch.ones(3 if ours else 4))
    # Calls are counted: some ranks are ahead, and each has what all others have at that number.
    ahead = 1 + 2 * hvd.rank()
    handles, done = [], 0
    for step in range(50):
        handles.append(hvd.allreduce_async(mine(step, 3), op=hvd.Sum))
        if len(handles) - done > ahead:
            check(hvd.synchronize(handles[done]), done)
            done += 1
    for step in range(done, 50):
        check(hvd.synchronize(handles[step]), step)

    def work():
        for _ in range(100):
            check(hvd.allreduce(mine(1, 3), op=hvd.Sum), 1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Not as many on all ranks: zeros for who has joined, and numbers begin anew.
    for epoch in range(3):
        for step in range(20 + 3 * ((hvd.rank() + epoch) % hvd.size())):
            if step < 20:
                check(hvd.allreduce(mine(step, 3), op=hvd.Sum), step)
            else:
                hvd.allreduce(mine(step, 3), op=hvd.Sum)
        hvd.join()
        for step in range(10):
            several(step)


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_deviates(job, nranks):
    job(nranks, rank_deviates)
