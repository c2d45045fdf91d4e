# SPDX-License-Identifier: Apache-2.0
"""Elastic states, run() and ElasticSampler, in a job whose ranks do not change.

Where a job says that it is elastic, it is a pretence; test_elastic_jobs.py has the real ones.
"""

import os
import signal

import pytest
import torch
from conftest import RANKS

import halay.torch as hvd
from halay import _elastic, _session
from halay._basics import meet_again


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


def rank_error_between_backward_and_step():
    """What is out then is waited for by nobody, and is not in the way of the next begin."""
    model, optimizer = training()
    state = hvd.elastic.TorchState(model, optimizer, batch=0)
    failing = {1}

    @hvd.elastic.run
    def train(state):
        while state.batch < 3:
            state.model(torch.ones(1, 2)).sum().backward()
            if state.batch in failing:
                failing.discard(state.batch)
                hvd.allreduce(torch.ones(1 + hvd.rank()), name="of different sizes")
            optimizer.step()
            optimizer.zero_grad()  # behind the step: a gradient of the failed one would stay
            state.batch += 1
            state.commit()
        return model.bias.item()

    begin = model.bias.item()
    end = train(state)
    begin = hvd.broadcast(torch.tensor([begin]), 0).item()
    assert end == pytest.approx(begin - 0.1 * (1 + 1.9 + 2.71), abs=1e-6)


def rank_newcomers():
    """All ranks hear of them in the same commit, and meet again."""
    model, optimizer = training()
    state = hvd.elastic.TorchState(model, optimizer, batch=0)
    calls, resets, waiting = [], [], [0]
    _session.Session.newcomers = lambda _: waiting[0]
    state.register_reset_callbacks([lambda: resets.append(state.batch)])
    sessions = [_session.session()]

    @hvd.elastic.run
    def train(state):
        calls.append((state.batch, hvd.allreduce(torch.ones(1), op=hvd.Sum).item()))
        while state.batch < 4:
            state.batch += 1
            waiting[:] = [hvd.rank() == 0 and state.batch == 2 and len(calls) == 1]
            state.commit()
        sessions.append(_session.session())
        return "done"

    assert train(state) == "done"
    assert calls == [(0, hvd.size()), (2, hvd.size())] and resets == [2]
    assert sessions[0] is not sessions[1]

    standing = _elastic._Standing()
    assert not standing.may_skip(True)  # nobody has a state yet
    standing.holds = hvd.rank() > 0
    assert not standing.may_skip(True) and standing.known
    standing.holds = False
    with pytest.raises(RuntimeError, match="all ranks that had the state"):
        standing.may_skip(False)
    standing.holds = True
    assert standing.may_skip(True) and not standing.may_skip(hvd.rank() == 0)


def rank_told_to_leave():
    """The last rank leaves in the commit after its SIGTERM; the others meet again, unsynced."""
    mine, syncs = [], []
    signal.signal(signal.SIGTERM, lambda *_: mine.append("program's"))
    before, last = signal.getsignal(signal.SIGTERM), hvd.rank() == hvd.size() - 1

    class Counting(hvd.elastic.ObjectState):
        def sync(self):
            syncs.append(self.batch)

    state = Counting(batch=0)

    @hvd.elastic.run
    def train(state):
        assert signal.getsignal(signal.SIGTERM) is not before
        while state.batch < 5:
            state.batch += 1
            if state.batch == 3 and last:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)  # by the agent, too
                assert mine == []
                _elastic.SAME_S = 0
                os.kill(os.getpid(), signal.SIGTERM)
                assert mine == ["program's"]
            state.commit()
        return "done"

    if last:
        with pytest.raises(SystemExit) as left:
            train(state)
        assert left.value.code == 143 and state.batch == 3 and not hvd.is_initialized()
        _elastic._notice.told = False
        hvd.init()  # as no one does who has left; but this job's ranks meet all or not at all
        standing = _elastic._Standing()
        standing.holds = True
        assert standing.may_skip(True)
        state.check_host_updates()
        state.check_host_updates()
    else:
        assert train(state) == "done"
        assert syncs == [0]
    assert signal.getsignal(signal.SIGTERM) is before


def rank_process_sets_again():
    hvd.shutdown()
    first = hvd.ProcessSet([0])
    hvd.init(process_sets=[first])
    meet_again()
    assert first.process_set_id == 1 and first.rank() == (0 if hvd.rank() == 0 else None)


def rank_elastic():
    rank_state()
    rank_run()
    rank_sampler()
    rank_error_between_backward_and_step()
    rank_process_sets_again()


def rank_pretence():
    real = _session.Session.newcomers
    try:
        _session.Session.newcomers = lambda _: 0
        hvd.shutdown()
        hvd.init()
        rank_newcomers()
        rank_told_to_leave()
    finally:
        _session.Session.newcomers = real


@pytest.mark.parametrize("nranks", RANKS)
def test_elastic(job, nranks):
    job(nranks, rank_elastic)


@pytest.mark.parametrize("nranks", RANKS)
def test_pretence(job, nranks):
    job(nranks, rank_pretence, own=True)


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
