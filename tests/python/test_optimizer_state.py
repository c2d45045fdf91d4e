# SPDX-License-Identifier: Apache-2.0
"""Optimizer state is handed on as it is: each optimizer of torch, with state of each type."""

import collections
import threading

import pytest
import torch
from conftest import RANKS

import halay.torch as hvd
from halay import _torch_state

# What each needs beside lr; those with matrices only; those that take a closure.
OPTIONS = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {"lr": torch.tensor(0.01), "capturable": False, "foreach": False},
    "RMSprop": {"momentum": 0.1, "centered": True},
    "ASGD": {"t0": 1},
}
OPTIMIZERS = sorted(
    name
    for name, one in vars(torch.optim).items()
    if isinstance(one, type) and name not in ("Optimizer", "SparseAdam")
)
FLOAT8 = [getattr(torch, n) for n in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, n)]
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8]
TYPES += [torch.uint8, torch.bool, torch.complex64, torch.complex128, *FLOAT8]

Pair = collections.namedtuple("Pair", "first second")


class Codes(torch.Tensor):
    """A state of 8 bits and a scale, as torchao's optimizers have it."""

    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], []

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale)
        raise NotImplementedError(str(function))


def parameters(dtype):
    torch.manual_seed(3)
    shapes = [(4, 3), (2, 5)]
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]


def trained(name, dtype, seed, steps):
    """An optimizer of that class that has taken so many steps, in two groups."""
    owned = parameters(dtype)
    options = {"lr": 0.01, **OPTIONS.get(name, {})}
    groups = [{"params": owned}]
    if name != "LBFGS":
        groups = [{"params": owned[:1]}, {"params": owned[1:], "lr": 0.001 * (seed + 1)}]
    optimizer = getattr(torch.optim, name)(groups, **options)
    for step in range(steps):
        generator = torch.Generator().manual_seed(10 * seed + step)
        for one in owned:
            one.grad = torch.randn(one.shape, generator=generator).to(dtype)
        optimizer.step(lambda: torch.tensor(1.0))
    return optimizer


def oddities(seed):
    """State of all types, as it is found in optimizers of others."""
    table = torch.arange(16, dtype=torch.float32) + seed
    flat = torch.arange(10, dtype=torch.float64) * seed
    codes = torch.arange(12) % 2 + seed
    typed = {str(dtype): codes.to(torch.float32).to(dtype).reshape(3, 4) for dtype in TYPES}
    return {
        **typed,
        "scalars": [torch.tensor(seed, dtype=dtype) for dtype in (torch.int64, torch.float64)],
        "nested": [{"a": (torch.ones(2, dtype=torch.float64), [table])}, seed, "text"],
        "pair": Pair(torch.zeros(1, dtype=torch.uint8), None),
        "ordered": collections.OrderedDict(b=table, a=flat[2:5]),
        "values": (seed, 0.1 * seed, 1j, "words", b"bytes", None, True, float("inf"), {seed}),
        "table": table,
        "view": flat[4:],
        "transposed": torch.arange(6, dtype=torch.int16).reshape(2, 3).t(),
        "last": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "empty": torch.empty(0, 3, dtype=torch.bfloat16),
        "sparse": torch.sparse_coo_tensor([[0, 2]], [1.0, float(seed)], (4,)),
        "codes": Codes(torch.arange(6, dtype=torch.uint8) + seed, torch.tensor(0.1 * seed)),
        "queue": collections.deque([table, 3], maxlen=4),
    }


def test_what_an_older_torch_saved():
    """Members that it did not know get the defaults that torch gives them."""
    for name in OPTIMIZERS:
        saved = trained(name, torch.float32, 1, 2).state_dict()
        for group in saved["param_groups"]:
            for member in ("foreach", "maximize", "capturable", "differentiable", "fused"):
                group.pop(member, None)
        ours, theirs = (trained(name, torch.float32, 0, 1) for _ in range(2))
        _torch_state.load(ours, saved)
        theirs.load_state_dict(saved)
        for own, its in zip(ours.param_groups, theirs.param_groups):
            same = {key: own[key] for key in own if key != "params"}
            assert same == {key: its[key] for key in its if key != "params"}, name


class Remembers(torch.optim.SGD):
    """Keeps what it has computed from its state till it loads another, as SaRA does."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr)
        self.of_state = {}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.of_state.clear()

    @torch.no_grad()
    def step(self, closure=None):
        for one in parameters_of(self):
            state = self.state[one]
            state.setdefault("mask", one > 0)
            rows = self.of_state.setdefault(one, state["mask"].nonzero())
            one[tuple(rows.t())] += 1


def parameters_of(optimizer):
    return [one for group in optimizer.param_groups for one in group["params"]]


def rank_remembers():
    for wrap in (lambda optimizer, _: optimizer, hvd.DistributedOptimizer):
        torch.manual_seed(hvd.rank())
        model = torch.nn.Linear(3, 2)
        optimizer = wrap(Remembers(model.parameters(), lr=0.1), model.named_parameters())
        for one in parameters_of(optimizer):
            one.grad = torch.zeros_like(one)
        optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        optimizer.step()
        assert len({repr(one) for one in hvd.allgather_object(model.weight.tolist())}) == 1


def test_what_is_computed_from_the_state_is_renewed(job):
    job(2, rank_remembers)


def rank_sparse_adam():
    """Its gradients are sparse, its state is not."""
    torch.manual_seed(hvd.rank())
    table = torch.nn.Embedding(6, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)

    def step(rows):
        optimizer.zero_grad()
        table(torch.tensor(rows)).pow(2).sum().backward()
        optimizer.step()

    for _ in range(3 if hvd.rank() == 0 else 0):
        step([0, 2, 2])
    hvd.broadcast_parameters(table.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    step([1, 2])
    of_all = hvd.allgather_object((table.weight.tolist(), optimizer.state_dict()["state"]))
    assert all(repr(one) == repr(of_all[0]) for one in of_all)


def test_sparse_adam(job):
    job(2, rank_sparse_adam)


def with_oddities(optimizer, seed):
    first, second = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state[first].update(odd := oddities(seed))
    optimizer.state[second].update(shared=odd["table"], other=first, alias=second.detach())
    optimizer.state["all"] = {"count": seed}
    optimizer.param_groups[0].update(kept=torch.tensor(seed), words=["a", seed], more=(0.5, seed))
    return optimizer


def leaves(value, seen, path=""):
    """What there is to compare: type, bits, strides, and what was seen before at another path."""
    if isinstance(value, torch.Tensor):
        before = seen.setdefault(id(value), path)
        if before != path:
            return [(path, "is", before)]
        if hasattr(value, "__tensor_flatten__"):
            names, more = value.__tensor_flatten__()
            found = [(path, type(value).__name__, repr(more), list(value.shape))]
            return found + leaves({name: getattr(value, name) for name in names}, seen, path)
        if value.layout != torch.strided:
            return leaves([value._indices(), value._values()], seen, path + "/sparse")
        memory = seen.setdefault(value.untyped_storage().data_ptr(), path)
        # A rank's parameters are its own.
        bits = memory not in ("/0", "/1") and value.detach().contiguous().reshape(-1).view(
            torch.uint8
        )
        said = type(value).__name__, str(value.dtype), str(value.device), value.requires_grad
        return [
            (
                path,
                *said,
                list(value.shape),
                list(value.stride()),
                memory,
                bits is not False and bits.tolist(),
            )
        ]
    if isinstance(value, dict):
        found = [(path, type(value).__name__)]
        return found + [x for key in value for x in leaves(value[key], seen, f"{path}/{key}")]
    if isinstance(value, (list, tuple, collections.deque)):
        found = [(path, type(value).__name__)]
        return found + [x for i, one in enumerate(value) for x in leaves(one, seen, f"{path}/{i}")]
    return [(path, type(value).__name__, repr(value))]


def state_of(optimizer):
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = {id(p): i for i, p in enumerate(owned)}
    seen = {}
    leaves(owned, seen)
    flat = [("groups", len(optimizer.param_groups))]
    for group in optimizer.param_groups:
        flat += leaves({k: v for k, v in group.items() if k != "params"}, seen)
    for key, value in optimizer.state.items():
        flat += leaves(value, seen, f"{numbers.get(id(key), key)}")
    return flat


def empty(optimizer):
    optimizer.state.clear()
    return optimizer


def step_together(optimizer, wrapped):
    """With the same gradients: all ranks are equal after it, too."""
    for one in _torch_state._parameters(optimizer):
        one.grad = torch.ones_like(one)
    if wrapped:
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step(lambda: torch.tensor(1.0))
    else:
        optimizer.step(lambda: torch.tensor(1.0))


def rank_state(names, wrapped):
    """A rank that has trained otherwise, one that has not trained, and each as the root."""
    me, last = hvd.rank(), hvd.size() - 1
    for number, name in enumerate(names):
        for dtype in (torch.bfloat16, torch.float32):
            for root, steps in ((last, 2 - 2 * me), (0, me)):
                expected = state_of(with_oddities(trained(name, dtype, root, 3), root + 5))
                at_root = me == root
                optimizer = trained(name, dtype, me, 3 if at_root else max(steps, 0))
                if at_root or (number + me) % 2:
                    with_oddities(optimizer, me + 5)
                if wrapped:
                    named = [(str(i), p) for i, p in enumerate(_torch_state._parameters(optimizer))]
                    optimizer = hvd.DistributedOptimizer(optimizer, named)
                before = [p.detach().clone() for p in _torch_state._parameters(optimizer)]
                hvd.broadcast_optimizer_state(optimizer, root)
                for got, want in zip(state_of(optimizer), expected):
                    assert got == want, (name, dtype, got, want)
                after = _torch_state._parameters(optimizer)
                assert all(torch.equal(p, q) for p, q in zip(after, before))
                everywhere = hvd.allgather_object(state_of(optimizer))
                assert all(one == everywhere[root] for one in everywhere)
                hvd.broadcast_parameters(after, root)
                step_together(optimizer, wrapped)
                everywhere = hvd.allgather_object(leaves(after, {}) + state_of(optimizer))
                assert all(one == everywhere[root] for one in everywhere)


class Extra(torch.nn.Module):
    """Parameters and buffers of all types, and state that is no tensor."""

    def __init__(self, seed):
        super().__init__()
        self.extra = {"seen": seed}
        self.weight = torch.nn.Parameter(torch.full((3,), float(seed)))
        values = torch.arange(4).reshape(2, 2) % 2 + seed
        for dtype in TYPES:
            self.register_buffer(f"of_{str(dtype)[6:]}", values.float().to(dtype).t())
        self.register_buffer("scale", torch.tensor(float(seed)).to(FLOAT8[0]))

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def rank_models():
    expected = leaves(dict(Extra(1).state_dict()), {})
    for sync in (True, False):
        model = Extra(hvd.rank() + 1)
        state = model.state_dict()
        if sync:
            hvd.elastic.TorchState(model, None).sync()
            assert leaves(dict(model.state_dict()), {}) == expected
        else:
            with pytest.raises(TypeError, match=r"_extra_state.*broadcast_object"):
                hvd.broadcast_parameters(state, 0)
            state.pop("_extra_state")
            hvd.broadcast_parameters(state, 0)
            found = leaves(dict(state), {})
            assert found == [one for one in expected if "_extra_state" not in one[0]]
    own = Codes(torch.full((3,), hvd.rank(), dtype=torch.uint8), torch.tensor(hvd.rank() + 0.5))
    hvd.broadcast_parameters({"codes": own}, 1)
    assert own.codes.tolist() == [1, 1, 1] and own.scale.item() == 1.5


def rank_elastic():
    """A commit that is put back, and the state of rank 0 on all."""
    for name in ("AdamW", "SGD", "LBFGS"):
        optimizer = with_oddities(trained(name, torch.bfloat16, hvd.rank(), 2), hvd.rank() + 1)
        state = hvd.elastic.TorchState(None, optimizer, epoch=hvd.rank())
        before = state_of(optimizer)
        optimizer.step(lambda: torch.tensor(1.0))
        optimizer.state["more"] = optimizer.param_groups[0]["kept"] = 3
        next(iter(optimizer.state.values()))["table"].zero_()
        for _ in range(2):
            state.restore()
            assert state_of(optimizer) == before
        state.sync()
        everywhere = hvd.allgather_object(state_of(optimizer))
        assert all(one == everywhere[0] for one in everywhere) and state.epoch == 0


def rank_refused():
    """The same words everywhere; and nothing is stuck after it."""
    owned = parameters(torch.float32)
    optimizer = torch.optim.SGD(owned[: 1 + (hvd.rank() == 0)], lr=0.1)
    with pytest.raises(ValueError, match=r"rank 1: ValueError: .*other parameter groups"):
        hvd.broadcast_optimizer_state(optimizer, 0)
    optimizer = torch.optim.SGD(owned, lr=0.1)
    if hvd.rank() == 0:
        optimizer.state[owned[0]]["lock"] = threading.Lock()
    with pytest.raises(ValueError, match=r"rank 0: TypeError: .*pickle"):
        hvd.broadcast_optimizer_state(optimizer, 0)


class Outer(torch.optim.Optimizer):
    """Steps another one, and has a state_dict() of its own form, which torch's casts."""

    def __init__(self, inner):
        self.inner, self.seen = inner, 0
        super().__init__([p for g in inner.param_groups for p in g["params"]], {})

    def state_dict(self):
        return {"inner": self.inner.state_dict(), "seen": self.seen}

    def load_state_dict(self, saved):
        self.inner.load_state_dict(saved["inner"])
        self.seen = saved["seen"]


def rank_wrappers():
    optimizer = Outer(trained("Adam", torch.bfloat16, hvd.rank(), hvd.rank()))
    optimizer.seen = hvd.rank()
    for one in optimizer.inner.state.values():
        one["master"] = torch.full((2,), 1.001953)
    hvd.broadcast_optimizer_state(optimizer, 1)
    everywhere = hvd.allgather_object(state_of(optimizer.inner))
    assert all(one == everywhere[1] for one in everywhere) and optimizer.seen == 1
    assert "float32" in str([one for one in everywhere[0] if "master" in one[0]])


def rank_others():
    rank_models()
    rank_elastic()
    rank_refused()
    rank_wrappers()


@pytest.mark.parametrize("nranks", RANKS)
def test_models_commits_and_wrappers(job, nranks):
    job(nranks, rank_others)


def test_load_casts_nothing():
    """What estimators of Spark do with a checkpoint."""
    optimizer = trained("AdamW", torch.bfloat16, 1, 2)
    first = optimizer.param_groups[0]["params"][0]
    optimizer.state[first].update(master=torch.ones(3), table=torch.arange(3), words="x")
    saved, before = optimizer.state_dict(), state_of(optimizer)
    other = trained("AdamW", torch.bfloat16, 2, 1)
    _torch_state.load(other, saved)
    assert state_of(other) == before
    _torch_state.follow_parameters(other)
    assert state_of(other) == before


@pytest.mark.parametrize("nranks", RANKS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_state_of_each_optimizer_and_type(job, nranks, wrapped):
    assert len(OPTIMIZERS) >= 11
    job(nranks, rank_state, OPTIMIZERS, wrapped)
