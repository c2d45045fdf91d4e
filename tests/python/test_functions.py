# SPDX-License-Identifier: Apache-2.0
"""broadcast_parameters, broadcast_optimizer_state, and Python objects."""

import pytest
import torch
from conftest import RANKS

import halay.torch as hvd


def model_of(seed, bias=True):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, bias=bias), torch.nn.BatchNorm2d(4), torch.nn.Linear(2, 3)
    )


def equal_states(a, b):
    assert a.keys() == b.keys()
    for key in a:
        assert a[key].dtype == b[key].dtype and torch.equal(a[key], b[key]), key


def rank_parameters():
    for root in range(hvd.size()):
        expected = model_of(root).state_dict()
        model = model_of(hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root)
        equal_states(model.state_dict(), expected)

        model = model_of(hvd.rank())
        hvd.broadcast_parameters(model.named_parameters(), root)
        equal_states(dict(model.named_parameters()), dict(model_of(root).named_parameters()))

        model = model_of(hvd.rank())
        hvd.broadcast_parameters(list(model.parameters()), root)
        equal_states(dict(model.named_parameters()), dict(model_of(root).named_parameters()))
    # Not contiguous, and not in the same order on all ranks.
    torch.manual_seed(hvd.rank())
    strided = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    named = {"a": strided, "b": torch.full((2,), float(hvd.rank()))}
    hvd.broadcast_parameters(named if hvd.rank() else dict(reversed(named.items())), 0)
    torch.manual_seed(0)
    assert torch.equal(strided, torch.randn(2, 3, 4, 5))
    assert named["b"].tolist() == [0, 0]


def trained(make, seed, steps):
    model = model_of(seed)
    parameters = list(model.parameters())
    optimizer = make(
        [{"params": parameters[:2], "lr": 0.5 / (seed + 1)}, {"params": parameters[2:]}]
    )
    for step in range(steps):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, float(seed + step))
        optimizer.step()
    return model, optimizer


def flatten(value, path=""):
    """A state as a list of comparable leaves."""
    if isinstance(value, torch.Tensor):
        return [(path, str(value.dtype), tuple(value.shape), value.tolist())]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in flatten(value[key], f"{path}/{key}")]
    if isinstance(value, (list, tuple)):
        kind = type(value).__name__
        return [leaf for i, v in enumerate(value) for leaf in flatten(v, f"{path}/{kind}{i}")]
    return [(path, type(value).__name__, value)]


def rank_optimizer_state():
    makers = [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.99), amsgrad=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
    ]
    root = hvd.size() - 1
    for make in makers:
        expected = flatten(trained(make, root, 3)[1].state_dict())
        # A rank that has trained otherwise, and one that has not trained at all.
        for steps in (1 + hvd.rank(), 0):
            at_root = hvd.rank() == root
            model, optimizer = trained(make, hvd.rank(), 3 if at_root else steps)
            before = [p.detach().clone() for p in model.parameters()]
            hvd.broadcast_optimizer_state(optimizer, root)
            assert flatten(optimizer.state_dict()) == expected
            # The parameters are not touched, and the next step works.
            assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
            optimizer.step()
        # A fresh state at the root makes all fresh.
        _, optimizer = trained(make, hvd.rank(), 0 if hvd.rank() == 0 else 2)
        hvd.broadcast_optimizer_state(optimizer, 0)
        assert flatten(optimizer.state_dict()) == flatten(trained(make, 0, 0)[1].state_dict())


def rank_gradients_of_zeros():
    """Left behind by broadcast_optimizer_state() where there was no state, as in Horovod."""
    model = torch.nn.ModuleList([torch.nn.Embedding(3, 2, sparse=True), torch.nn.Linear(2, 2)])
    model[1].bias.requires_grad_(False)
    for make, sparse in ((torch.optim.SGD, True), (torch.optim.Adam, False)):
        model.zero_grad(set_to_none=True)
        optimizer = make(model.parameters(), lr=0.1)
        hvd.broadcast_optimizer_state(optimizer, 0, model if sparse else None)
        assert model[0].weight.grad.is_sparse == sparse
        assert torch.equal(model[0].weight.grad.to_dense(), torch.zeros(3, 2))
        assert torch.equal(model[1].weight.grad, torch.zeros(2, 2))
        assert model[1].bias.grad is None


def rank_objects():
    me, nranks = hvd.rank(), hvd.size()
    for root in range(nranks):
        mine = {"rank": me, "list": list(range(me * 1000)), "tensor": torch.full((3,), me)}
        found = hvd.broadcast_object(mine, root)
        assert found["rank"] == root and len(found["list"]) == root * 1000
    for call in (hvd.broadcast_object, lambda _, root: hvd.broadcast(torch.ones(1), root)):
        with pytest.raises(TypeError, match="broadcast.*: root_rank must be an integer, not 0.5"):
            call(None, 0.5)
        assert found["tensor"].tolist() == [root] * 3
        assert hvd.broadcast_object(None if me != root else "x", root, name="n") == "x"
    assert hvd.allgather_object("r" * me) == ["r" * r for r in range(nranks)]
    assert hvd.allgather_object({me}, name="sets") == [{r} for r in range(nranks)]
    assert len(hvd.hosts()) == nranks


def rank_default_device():
    """What we make ourselves is in the host's memory, whatever device the program's tensors get."""
    me, nranks = hvd.rank(), hvd.size()
    linear = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.1)
    linear(torch.ones(2)).sum().backward()
    optimizer.step()
    rows = torch.full((nranks, 2), float(me))
    ones = torch.ones(nranks, dtype=torch.int32)
    with torch.device("meta"):
        assert hvd.broadcast_object({"of": me}, nranks - 1) == {"of": nranks - 1}
        assert hvd.allgather_object(me) == list(range(nranks))
        hvd.broadcast_optimizer_state(optimizer, 0)
        out, splits = hvd.alltoall(rows, ones, name="rows")
        ada = hvd.allreduce(rows, op=hvd.Adasum, name="ada")
    assert out[:, 0].tolist() == list(range(nranks)) and splits.tolist() == [1] * nranks
    assert ada.device.type == "cpu" and torch.isfinite(ada).all()
    assert optimizer.state[linear.weight]["exp_avg"].device.type == "cpu"


def rank_functions():
    rank_parameters()
    rank_default_device()
    rank_optimizer_state()
    rank_gradients_of_zeros()
    rank_objects()


@pytest.mark.parametrize("nranks", RANKS)
def test_functions(job, nranks):
    job(nranks, rank_functions)


def test_alone_they_change_nothing(alone):
    model, optimizer = trained(lambda p: torch.optim.SGD(p, lr=1, momentum=0.5), 3, 2)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    flat = flatten(optimizer.state_dict())
    alone.broadcast_parameters(model.state_dict(), 0)
    alone.broadcast_optimizer_state(optimizer, 0)
    equal_states(model.state_dict(), state)
    assert flatten(optimizer.state_dict()) == flat
