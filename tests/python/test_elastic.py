# SPDX-License-Identifier: Apache-2.0
"""Elastic states, run() and ElasticSampler, in a job whose ranks do not change."""

import pytest
import torch
from conftest import RANKS

import halay.torch as hvd


def training():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    return model, optimizer


def rank_state():
    model, optimizer = training()
    state = hvd.elastic.TorchState(model, optimizer, batch=hvd.rank(), seen=[hvd.rank()])
    state.sync()
    assert state.batch == 0 and state.seen == [0]
    weights = hvd.allgather(model.weight.detach()[None])
    assert all(torch.equal(w, weights[0]) for w in weights)
    before = model.weight.detach().clone()
    state.batch = 5
    state.seen.append(7)  # in place: a commit has a copy
    with torch.no_grad():
        model.weight.add_(1)
    state.restore()
    assert (state.batch, state.seen) == (0, [0]) and torch.equal(model.weight, before)
    state.batch = 6
    state.commit()
    state.batch = 7
    state.restore()
    assert state.batch == 6
    other = torch.nn.Linear(2, 1)
    state.model = other
    with torch.no_grad():
        other.weight.zero_()
    state.restore()
    assert state.model is other and other.weight.any()


def rank_run():
    """An error on all ranks in mid-epoch: the last commit, a new meeting, and on from there."""
    model, optimizer = training()
    state = hvd.elastic.TorchState(model, optimizer, batch=0)
    resets, calls, failing = [], [], {3, 5}
    state.register_reset_callbacks([lambda: resets.append(state.batch)])

    @hvd.elastic.run
    def train(state, until):
        calls.append(state.batch)
        while state.batch < until:
            state.optimizer.zero_grad()
            state.model(torch.ones(1, 2) * (hvd.rank() + 1)).sum().backward()
            state.optimizer.step()
            if state.batch in failing:
                failing.discard(state.batch)
                hvd.allreduce(torch.ones(1 + hvd.rank()), name="of different sizes")
            state.batch += 1
            if state.batch % 2 == 0:
                state.commit()
        return "done"

    assert train(state, 8) == "done"
    assert calls == [0, 2, 4] and resets == [2, 4]
    weights = hvd.allgather(model.weight.detach()[None])
    assert all(torch.equal(w, weights[0]) for w in weights)

    interrupted = []

    @hvd.elastic.run
    def interrupt(state):
        if len(interrupted) < 2:
            interrupted.append(state.batch)
            state.batch += 1
            raise hvd.HostsUpdatedInterrupt(skip_sync=len(interrupted) == 1)
        return state.batch

    assert interrupt(state) == 10

    @hvd.elastic.run
    def hopeless(state):
        calls.append("hopeless")
        hvd.allreduce(torch.ones(1 + hvd.rank()), name="of different sizes")

    with pytest.raises(hvd.HalayMismatch):
        hopeless(state)
    assert calls.count("hopeless") == 2  # the second error without a commit


def rank_sampler():
    me, nranks = hvd.rank(), hvd.size()
    data = list(range(6 * nranks + 1))
    sampler = hvd.elastic.ElasticSampler(data, seed=3)
    state = hvd.elastic.TorchState(sampler=sampler)
    state.sync()
    assert len(sampler) == 7 == len(list(sampler))
    everyone = [i for part in hvd.allgather_object(list(sampler)) for i in part]
    assert set(everyone) == set(data) and len(everyone) == 7 * nranks
    used = list(sampler)[:4]
    sampler.record_batch(0, 4)
    state.commit()
    sampler.record_batch(1, 2)
    state.restore()
    sampler.reset()
    used = {i for part in hvd.allgather_object(used) for i in part}
    left = [i for part in hvd.allgather_object(list(sampler)) for i in part]
    assert set(left) == set(data) - used
    sampler.set_epoch(1)
    assert sampler.processed_num == 0 and len(sampler) == 7
    plain = hvd.elastic.ElasticSampler(data, shuffle=False)
    assert list(plain)[:2] == [me, me + nranks]
    # Fewer left than ranks: everybody gets one all the same.
    few = hvd.elastic.ElasticSampler([0])
    assert list(few) == [0]


def rank_elastic():
    rank_state()
    rank_run()
    rank_sampler()


@pytest.mark.parametrize("nranks", RANKS)
def test_elastic(job, nranks):
    job(nranks, rank_elastic)


def test_handlers(alone):
    elastic = alone.elastic
    registry = elastic.get_handler_registry()
    assert elastic.state.get_handler_registry() is registry
    elastic.set_handler_registry([])
    try:
        state = elastic.TorchState(torch.nn.Linear(1, 1), epoch=1)
        state.model = None
        state.restore()
        assert isinstance(state.model, torch.nn.Linear)  # pickled as any other object
    finally:
        elastic.set_handler_registry(registry)
