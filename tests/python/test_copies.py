# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of what a program holds: they work, and reduce nothing twice."""

import copy
import io
import pickle
import threading

import pytest
import torch
from conftest import RANKS

import halay.torch as hvd


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)), saved]


def made(**options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), hvd.SyncBatchNorm(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def train(model, optimizer, steps):
    for _ in range(steps):
        for _ in range(optimizer.backward_passes_per_step):
            model(torch.ones(5, 3).cumsum(0) * (hvd.rank() + 1)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def check_equal(model, other):
    for p, q in zip(model.parameters(), other.parameters()):
        everywhere = hvd.allgather(p.detach().unsqueeze(0))
        assert torch.equal(p, q) and all(torch.equal(one, p) for one in everywhere)


def rank_optimizers():
    """A model and its optimizer, copied at once, train on as the first two do."""
    for options in ({"backward_passes_per_step": 2}, {"op": hvd.Adasum}, {"groups": 2}):
        for way in WAYS:
            model, optimizer = made(**options)
            train(model, optimizer, 2)
            again, second = way((model, optimizer))
            assert isinstance(second, torch.optim.Adam) and second.param_groups[0]["lr"] == 0.01
            assert list(second._parameter_names.values()) == list(
                optimizer._parameter_names.values()
            )
            train(model, optimizer, 2)
            train(again, second, 2)
            check_equal(model, again)
    model, optimizer = made()
    shallow = copy.copy(optimizer)
    assert shallow.state is optimizer.state and shallow.param_groups is optimizer.param_groups
    train(model, shallow, 1)
    optimizer.load_state_dict(saved(optimizer.state_dict()))


def rank_models():
    """A copy of a model alone, on one rank or all, has no part in the reductions."""
    for style in (copy.deepcopy, *WAYS[1:]):
        model, optimizer = made()
        train(model, optimizer, 1)
        mean = style(model) if hvd.rank() == 0 else None
        if mean is not None:
            mean.eval()(torch.ones(2, 3)).sum().backward()  # nobody else does
            for p, q in zip(mean.parameters(), model.parameters()):
                p.data.lerp_(q.data, 0.5)
        train(model, optimizer, 2)
        check_equal(model, model)


def rank_objects():
    some = hvd.add_process_set([0])
    for way in WAYS:
        assert way(hvd.global_process_set) is hvd.global_process_set
        found = way(some)
        assert found.ranks == [0] and found.rank() == some.rank()
        assert way(hvd.Compression.fp16) is hvd.Compression.fp16
    model, optimizer = made()
    train(model, optimizer, 1)
    state = hvd.elastic.TorchState(model, optimizer, epoch=3)
    for way in WAYS:
        again = way(state)
        train(model, optimizer, 1)
        train(again.model, again.optimizer, 1)
        check_equal(model, again.model)
        again.sync()
        again.restore()
        assert again.epoch == 3
        state.model, state.optimizer = model, optimizer


def rank_copies():
    rank_optimizers()
    rank_models()
    rank_objects()


@pytest.mark.parametrize("nranks", RANKS)
def test_copies(job, nranks):
    job(nranks, rank_copies)


def test_without_a_job_a_pickle_says_what_to_do(alone):
    pickled = pickle.dumps(made())
    alone.shutdown()
    with pytest.raises(hvd.NotInitialized, match="init"):
        pickle.loads(pickled)


def test_threads_that_take_one_name(alone):
    """One gets it; the others hear that it is out."""
    found, begin = [], threading.Barrier(8)

    def submit():
        begin.wait()
        try:
            found.append(alone.allreduce_async(torch.ones(1), name="same"))
        except alone.DuplicateName:
            found.append(None)

    for _ in range(20):
        threads = [threading.Thread(target=submit) for _ in range(8)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        handles = [handle for handle in found if handle is not None]
        assert len(found) == 8 and len(handles) == 1
        alone.synchronize(handles[0])
        found.clear()


def test_many_names_take_no_time(alone):
    """As many comparisons as names, not as pairs of them."""
    owned = [torch.nn.Parameter(torch.zeros(1)) for _ in range(30000)]
    compared = []

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            compared.append(1)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    named = [(Name(f"p{i}"), one) for i, one in enumerate(owned)]
    alone.DistributedOptimizer(torch.optim.SGD(owned, lr=0.1), named)
    assert len(compared) < 10 * len(owned)
