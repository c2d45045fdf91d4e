# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer against serial training on the joined batch, with both kinds of hooks."""

import gc
import math
import tempfile
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import RANKS

import halay.torch as hvd
import halay.torch.optimizer as implementation
from halay import timeline

STYLES = ["post_accumulate", "accumulator"]
ROWS = 8  # of one rank


class Net(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(6, 16, dtype=dtype)
        self.second = torch.nn.Linear(16, 16, dtype=dtype)
        self.third = torch.nn.Linear(16, 4, dtype=dtype)

    def forward(self, x):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))


def shards(step, nranks, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(nranks * ROWS, 6, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randn(nranks * ROWS, 4, generator=generator, dtype=torch.float64).to(dtype)
    return list(zip(x.split(ROWS), y.split(ROWS)))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def parameters(model):
    return [p.detach().clone() for p in model.parameters()]


def serial(make, steps, dtype, reduce_, passes=1):
    """Trains alone: each rank's gradient by itself, then reduce_ puts them together."""
    model = Net(dtype)
    optimizer = make(model)
    for step in range(steps):
        gradients = []
        for rank in range(hvd.size()):
            optimizer.zero_grad()
            for part in range(passes):
                x, y = shards(step * passes + part, hvd.size(), dtype)[rank]
                F.mse_loss(model(x), y).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for parameter, *of_ranks in zip(model.parameters(), *gradients):
            parameter.grad = reduce_(of_ranks)
        optimizer.step()
    return parameters(model)


def parallel(make, steps, dtype, passes=1, **options):
    model = Net(dtype)
    optimizer = hvd.DistributedOptimizer(
        make(model), model.named_parameters(), backward_passes_per_step=passes, **options
    )
    assert isinstance(optimizer, type(make(model)))
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(passes):
            x, y = shards(step * passes + part, hvd.size(), dtype)[hvd.rank()]
            F.mse_loss(model(x), y).backward()
        optimizer.step()
    return parameters(model)


def times(factor):
    return lambda gradients: sum(gradients[1:], gradients[0]) * factor


def check_same(found, expected):
    for a, b in zip(found, expected):
        assert torch.equal(a, b), (a - b).abs().max()


def check_near(found, expected, tolerance):
    for a, b in zip(found, expected):
        assert (a - b).abs().max() <= tolerance, (a - b).abs().max()


def rank_equals_serial():
    """Two operands have one sum: with two ranks each bit is that of the serial reference."""
    for make in (sgd, adam):
        average = torch.tensor(1.0 / hvd.size())
        check = check_same if hvd.size() == 2 else lambda a, b: check_near(a, b, 1e-5)
        expected = serial(make, 6, torch.float32, times(average))
        check(parallel(make, 6, torch.float32), expected)
        summed = serial(make, 3, torch.float32, times(1.0))
        check(parallel(make, 3, torch.float32, op=hvd.Sum), summed)
        two = serial(make, 3, torch.float32, times(average), passes=2)
        check(parallel(make, 3, torch.float32, passes=2), two)


def rank_equals_joined_batch():
    """The mean of equal shards' gradients is the gradient of the joined batch."""
    model = Net(torch.float64)
    optimizer = adam(model)
    for step in range(10):
        x, y = (torch.cat(parts) for parts in zip(*shards(step, hvd.size(), torch.float64)))
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    check_near(parallel(adam, 10, torch.float64), parameters(model), 1e-9)
    check_near(
        parallel(adam, 10, torch.float64, gradient_predivide_factor=hvd.size()),
        parameters(model),
        1e-9,
    )


def rank_predivide():
    """1/f before the sum, f/size after it; powers of two change no bit."""
    plain = parallel(sgd, 3, torch.float32)
    check_same(parallel(sgd, 3, torch.float32, gradient_predivide_factor=2.0), plain)


def rank_compression():
    exact = parallel(sgd, 3, torch.float32)
    half = parallel(sgd, 3, torch.float32, compression=hvd.Compression.fp16)
    brain = parallel(sgd, 3, torch.float32, compression=hvd.Compression.bf16)
    check_near(half, exact, 2e-3)
    check_near(brain, exact, 2e-2)
    assert not all(torch.equal(a, b) for a, b in zip(half, exact))
    assert not all(torch.equal(a, b) for a, b in zip(half, brain))


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used = torch.nn.Linear(2, 2, bias=False)
        self.sometimes = torch.nn.Linear(2, 2, bias=False)
        self.never = torch.nn.Linear(2, 2, bias=False)
        self.frozen = torch.nn.Linear(2, 2, bias=False).requires_grad_(False)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(1.0)

    def forward(self, x, take):
        return self.frozen(self.sometimes(self.used(x)) if take else self.used(x))


def rank_missing_gradients():
    """A branch that one rank takes, one that nobody takes, and frozen weights."""
    model = Branches()
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    model(torch.ones(1, 2), take=hvd.rank() == 0).sum().backward()
    optimizer.synchronize()
    assert model.frozen.weight.grad is None
    assert torch.equal(model.never.weight.grad, torch.zeros(2, 2))
    # d/dW of ones @ used.T @ sometimes.T @ frozen.T: 4 each, on rank 0 only.
    assert torch.equal(model.sometimes.weight.grad, torch.full((2, 2), 4.0 / hvd.size()))
    with optimizer.skip_synchronize():
        optimizer.step()
    assert torch.equal(model.frozen.weight, torch.ones(2, 2))
    optimizer.zero_grad()

    # Thawed later: reduced from then on.
    model.frozen.weight.requires_grad_(True)
    (model(torch.ones(1, 2), take=False).sum() * (hvd.rank() + 1)).backward()
    optimizer.step()
    weights = hvd.allgather(model.frozen.weight.detach().unsqueeze(0))
    assert all(torch.equal(w, weights[0]) for w in weights)
    assert not torch.equal(weights[0], torch.ones(2, 2))


def rank_new_group():
    model, late = Net(), torch.nn.Linear(3, 1)
    hvd.broadcast_parameters(late.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    optimizer.add_param_group({"params": list(late.parameters())})
    late(torch.full((2, 3), float(hvd.rank() + 1))).sum().backward()
    optimizer.step()
    weights = hvd.allgather(late.weight.detach())
    assert all(torch.equal(w, weights[0]) for w in weights)
    assert late.weight.grad[0, 0].item() == pytest.approx(2 * (hvd.size() + 1) / 2)


def rank_strided_gradient():
    weight = torch.zeros(2, 3, requires_grad=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)])
    scale = torch.arange(6.0).reshape(3, 2).t() * (hvd.rank() + 1)
    weight.grad = torch.empty(3, 2).t()
    weight.grad.zero_()
    (weight * scale).sum().backward()
    optimizer.step()
    mean = (hvd.size() + 1) / 2
    assert torch.allclose(weight.detach(), -torch.arange(6.0).reshape(3, 2).t() * mean)


def loss_of(model, step=0):
    x, y = shards(step, hvd.size())[hvd.rank()]
    return F.mse_loss(model(x), y)


def recorded(body):
    """(from its submission, to its end) of each tensor that was reduced meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        hvd.start_timeline(f"{folder}/timeline")
        body()
        hvd.stop_timeline()
        (path,) = Path(folder).iterdir()
        events = timeline.read(path)
    rows = timeline.names(events)
    found = {}
    for e in (e for e in events if e["name"] in ("NEGOTIATE_ALLREDUCE", "ALLREDUCE")):
        begin, end = found.get(rows[e["pid"], e["tid"]], (math.inf, 0))
        found[rows[e["pid"], e["tid"]]] = min(begin, e["ts"]), max(end, e["ts"] + e["dur"])
    return found


def rank_misuse():
    model = Net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    loss_of(model).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        loss_of(model).backward()
    optimizer.synchronize()
    # Programs written for Horovod filter this warning by its first words.
    with pytest.warns(UserWarning, match=r"^optimizer.step\(\) called without optimizer.skip_sync"):
        optimizer.step()
    optimizer.zero_grad()

    loss_of(model).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with optimizer.skip_synchronize():
        assert recorded(optimizer.step) == {}


def rank_closure():
    """The closure's gradients are reduced before the step uses them."""
    plain, closed = parallel(sgd, 3, torch.float32), Net()
    optimizer = hvd.DistributedOptimizer(sgd(closed), closed.named_parameters())
    for step in range(3):

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(closed, step)
            loss.backward()
            return loss

        assert optimizer.step(closure).item() > 0
    check_same(parameters(closed), plain)


def rank_schedulers_and_hooks():
    """A scheduler made before and one made after; a step hook runs once and sees reduced ones."""
    model, seen = Net(), []
    inner = sgd(model)
    early = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    if hasattr(inner, "register_step_pre_hook"):
        inner.register_step_pre_hook(lambda *_: seen.append(model.first.weight.grad.clone()))
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    loss_of(model).backward()
    optimizer.step()
    late.step()
    early.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 4)
    if seen:
        assert len(seen) == 1
        gathered = hvd.allgather(seen[0].unsqueeze(0))
        assert all(torch.equal(g, seen[0]) for g in gathered)
    weights = hvd.allgather(model.first.weight.detach().unsqueeze(0))
    assert all(torch.equal(w, weights[0]) for w in weights)


def rank_kept_state():
    """Momentum that was there before wrapping stays; load_state_dict works after."""
    model = Net()
    inner = sgd(model)
    loss_of(model).backward()
    inner.step()
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    assert optimizer.state_dict()["state"][0]["momentum_buffer"] is not None
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    hvd.broadcast_optimizer_state(optimizer, 0)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    weights = hvd.allgather(model.first.weight.detach().unsqueeze(0))
    assert all(torch.equal(w, weights[0]) for w in weights)


def rank_dropped_optimizer():
    """A second optimizer on the same model, after the first is gone."""
    model = Net()
    for _ in range(2):
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        del optimizer
        gc.collect()


class Awaiting(torch.autograd.Function):
    """A backward pass that does not go on before a handle is done, which nobody synchronizes."""

    @staticmethod
    def forward(ctx, x, handle_of):
        ctx.handle_of = handle_of
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        end = time.monotonic() + 25
        while not hvd.poll(ctx.handle_of()):
            assert time.monotonic() < end, "no progress during the backward pass"
            time.sleep(0.001)
        return gradient, None


def rank_overlap():
    """The last layer's gradient is reduced while the backward pass has still to reach the first."""
    model = Net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    last = optimizer._reducer.gradients[model.third.weight]
    x, y = shards(0, hvd.size())[hvd.rank()]
    hidden = Awaiting.apply(torch.tanh(model.first(x)), lambda: last.handle)

    def step():
        F.mse_loss(model.third(hidden), y).backward()
        optimizer.step()

    times = recorded(step)
    first, third = times["allreduce.first.weight"], times["allreduce.third.weight"]
    assert third[0] <= third[1] < first[0]


def rank_optimizer(style):
    implementation._HOOKS = style
    for body in (
        rank_equals_serial,
        rank_equals_joined_batch,
        rank_predivide,
        rank_compression,
        rank_missing_gradients,
        rank_new_group,
        rank_strided_gradient,
        rank_misuse,
        rank_closure,
        rank_schedulers_and_hooks,
        rank_kept_state,
        rank_dropped_optimizer,
        rank_overlap,
    ):
        body()


@pytest.mark.parametrize("nranks", RANKS)
@pytest.mark.parametrize("style", [STYLES[0], pytest.param(STYLES[1], marks=pytest.mark.long)])
def test_optimizer(job, nranks, style):
    if style == STYLES[0] and not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        pytest.skip("this torch has no register_post_accumulate_grad_hook (2.1 and later have)")
    job(nranks, rank_optimizer, style)


def test_default_style_is_what_torch_has(alone, monkeypatch):
    calls = []
    monkeypatch.setattr(
        torch.Tensor,
        "register_post_accumulate_grad_hook",
        lambda self, hook: calls.append(self),
        raising=False,
    )
    weight = torch.ones(1, requires_grad=True)
    implementation._attach(weight, lambda _: None)
    assert len(calls) == 1
    monkeypatch.delattr(torch.Tensor, "register_post_accumulate_grad_hook")
    fired = []
    kept = implementation._attach(weight, fired.append)
    (weight * 2).sum().backward()
    assert kept is not None and len(fired) == 1 and fired[0] is weight


def test_wrong_arguments(alone):
    model = Net()
    names = list(model.named_parameters())
    with pytest.raises(ValueError, match=r"found twice: first\.weight"):
        alone.DistributedOptimizer(sgd(model), [*names, names[0]])
    with pytest.raises(ValueError, match=r"leaves out 1 .* of shape \(4,\)"):
        alone.DistributedOptimizer(sgd(model), names[:-1])
    with pytest.raises(ValueError, match="tuples"):
        alone.DistributedOptimizer(sgd(model), model.parameters())
    with pytest.raises(ValueError, match="must be positive, not 0"):
        alone.DistributedOptimizer(sgd(model), names, backward_passes_per_step=0)
    with pytest.raises(ValueError, match="needs op"):
        alone.DistributedOptimizer(sgd(model), names, op=hvd.Sum, gradient_predivide_factor=2.0)
    optimizer = alone.DistributedOptimizer(sgd(model), names)
    with pytest.raises(ValueError, match="already"):
        alone.DistributedOptimizer(optimizer, names)


def test_one_rank_trains_as_without(alone):
    plain = Net()
    optimizer = sgd(plain)
    wrapped = Net()
    distributed = alone.DistributedOptimizer(sgd(wrapped))
    for step in range(3):
        for model, one in ((plain, optimizer), (wrapped, distributed)):
            one.zero_grad()
            loss_of(model, step).backward()
            one.step()
    check_same(parameters(wrapped), parameters(plain))
