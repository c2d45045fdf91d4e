# SPDX-License-Identifier: Apache-2.0
"""join(): ranks with different numbers of batches."""

import pytest
import torch
from conftest import ODD_RANKS, RANKS

import halay.torch as hvd


def rank_epochs():
    """A model trained on uneven data: what the rank with the most has, divided by all ranks."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2).double()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    data = [
        torch.randn(4, 3, generator=torch.Generator().manual_seed(i)).double() for i in range(12)
    ]
    nranks = hvd.size()
    counts = [[4 + 2 * ((r + epoch) % nranks) for r in range(nranks)] for epoch in range(3)]
    for epoch in range(3):
        for batch in range(counts[epoch][hvd.rank()]):
            optimizer.zero_grad()
            model(data[batch] * (1 + hvd.rank())).square().mean().backward()
            optimizer.step()
        last = hvd.join()
        assert counts[epoch][last] == max(counts[epoch])
        # Who has joined early has not seen the others' last steps: as in Horovod, it takes them.
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        # Calls without a name still meet, though ranks have made different numbers of them.
        for _ in range(hvd.rank() + 1):
            if epoch == 2:
                hvd.allreduce(torch.ones(2), op=hvd.Sum)
        if epoch == 2:
            hvd.join()
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [nranks] * 2

    plain = torch.nn.Linear(3, 2).double()
    for p, first in zip(plain.parameters(), start):
        p.data.copy_(first)
    serial = torch.optim.SGD(plain.parameters(), lr=0.1)
    for epoch in range(3):
        for batch in range(max(counts[epoch])):
            serial.zero_grad()
            for r in range(nranks):
                if batch < counts[epoch][r]:
                    (plain(data[batch] * (1 + r)).square().mean() / nranks).backward()
            serial.step()
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("nranks", RANKS)
def test_uneven_data(job, nranks):
    job(nranks, rank_epochs)


def rank_refused():
    """What zeros would make wrong raises, and what is left goes on."""
    if hvd.rank() != 0:
        for call in (
            lambda: hvd.allgather(torch.ones(2, 2)),
            lambda: hvd.broadcast(torch.ones(2), root_rank=1),
            lambda: hvd.alltoall(torch.ones(hvd.size())),
            lambda: hvd.allreduce(torch.ones(2), op=hvd.Max),
        ):
            with pytest.raises(hvd.HorovodInternalError, match="rank 0 .*joined"):
                call()
        hvd.barrier()
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size() - 1] * 2
        total = hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], op=hvd.Sum)
        assert [t.tolist() for t in total] == [[hvd.size() - 1], [hvd.size() - 1] * 2]
        assert (
            hvd.allreduce(torch.full((2,), 7), op=hvd.Average).tolist()
            == [7 * (hvd.size() - 1) // hvd.size()] * 2
        )
    assert hvd.join() != 0
    assert hvd.allgather(torch.ones(1)).tolist() == [1] * hvd.size()


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_refused(job, nranks):
    job(nranks, rank_refused)


def test_alone(alone):
    assert alone.join() == 0
    assert alone.join() == 0
