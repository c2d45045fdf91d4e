# SPDX-License-Identifier: Apache-2.0
"""Training as programs do it, against one process that has all ranks' gradients.

Each scenario is run twice: on the ranks of the job, and by each rank alone, in the place of all.
With two ranks every bit is the same, for two operands have one sum.
"""

import gc

import pytest
import torch
import torch.nn.functional as F
from conftest import RANKS
from test_optimizer import Net, adam, check_near, sgd, shards

import halay.torch as hvd


class Ranks:
    """The job: this rank computes its own loss."""

    def wrap(self, optimizer, names=None, **options):
        return hvd.DistributedOptimizer(optimizer, names, **options)

    def backward(self, loss, **options):
        loss(hvd.rank()).backward(**options)

    def step(self, optimizer):
        optimizer.step()


class Alone:
    """One process in the place of all: gradients of each rank by themselves, then their mean."""

    def __init__(self):
        self.optimizers = []
        self.gradients = {}

    def wrap(self, optimizer, names=None, **options):
        self.optimizers.append(optimizer)
        return optimizer

    def parameters(self, optimizers):
        return {id(p): p for o in optimizers for g in o.param_groups for p in g["params"]}.values()

    def backward(self, loss, **options):
        every = self.parameters(self.optimizers)
        merged = {p: p.grad for p in every}
        for rank in range(hvd.size()):
            for p in every:
                kept = self.gradients.get((rank, p))
                # What was there before is every rank's; zero_grad() clears every rank's.
                fresh = merged[p] is None or kept is None or not merged[p].any()
                p.grad = (None if merged[p] is None else merged[p].clone()) if fresh else kept
            loss(rank).backward(**options)
            for p in every:
                self.gradients[rank, p] = None if p.grad is None else p.grad.clone()
        for p in every:
            of_ranks = [self.gradients[rank, p] for rank in range(hvd.size())]
            present = [g for g in of_ranks if g is not None]
            p.grad = None
            if present:
                zero = torch.zeros_like(present[0])
                p.grad = sum(zero if g is None else g for g in of_ranks) * (1 / hvd.size())

    def step(self, optimizer):
        for p in self.parameters([optimizer]):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        optimizer.step()
        self.gradients.clear()


def mse(model, step, rank):
    x, y = shards(step, hvd.size())[rank]
    return F.mse_loss(model(x), y)


def two_models(world):
    """In turn, and then both out of one loss."""
    a, b = Net(), Net()
    first = world.wrap(sgd(a), a.named_parameters())
    names = [(f"b.{name}", p) for name, p in b.named_parameters()]
    second = world.wrap(adam(b), names)
    for step in range(6):
        both = step >= 4
        chosen = [a, b] if both else [(a, b)[step % 2]]
        for optimizer in (first, second):
            optimizer.zero_grad()
        world.backward(lambda rank, s=step, m=chosen: sum(mse(one, s, rank) for one in m))
        for model, optimizer in ((a, first), (b, second)):
            if model in chosen:
                world.step(optimizer)
    return [*a.parameters(), *b.parameters()]


def two_optimizers(world):
    """One for each half of a model, without names."""
    model = Net()
    halves = [
        list(model.first.parameters()),
        [*model.second.parameters(), *model.third.parameters()],
    ]
    optimizers = [world.wrap(torch.optim.SGD(half, lr=0.1, momentum=0.9)) for half in halves]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        world.backward(lambda rank, s=step: mse(model, s, rank))
        for optimizer in optimizers:
            world.step(optimizer)
    return model.parameters()


def optimizers_in_turn(world):
    """Two over the same parameters: one for even steps, one for odd ones."""
    model = Net()
    optimizers = [world.wrap(make(model), model.named_parameters()) for make in (sgd, adam)]
    for step in range(5):
        optimizers[step % 2].zero_grad()
        world.backward(lambda rank, s=step: mse(model, s, rank))
        world.step(optimizers[step % 2])
    return model.parameters()


class Branching(Net):
    def forward(self, x, deep):
        hidden = torch.tanh(self.first(x))
        return self.third(torch.tanh(self.second(hidden)) if deep else hidden)


def branches(world):
    """Which layers a rank uses depends on the rank and the step; sometimes nobody uses one."""
    model = Branching()
    optimizer = world.wrap(sgd(model), model.named_parameters())
    for step in range(8):
        optimizer.zero_grad()

        def loss(rank, step=step):
            x, y = shards(step, hvd.size())[rank]
            return F.mse_loss(model(x, deep=step in (1, 6) or (step + rank) % 3 == 0), y)

        world.backward(loss)
        world.step(optimizer)
    return model.parameters()


def clearing(world):
    """zero_grad() to None and to zero in turn, and not at all: gradients grow."""
    model = Net()
    optimizer = world.wrap(sgd(model), model.named_parameters())
    for step in range(6):
        if step != 3:
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        world.backward(lambda rank, s=step: mse(model, s, rank))
        world.step(optimizer)
    return model.parameters()


def recreated(world):
    """Model and optimizer are made anew in mid-training; the old ones are still there."""
    kept, state = [], Net().state_dict()
    for step in range(4):
        model = Net()
        model.load_state_dict(state)
        optimizer = world.wrap(sgd(model), model.named_parameters())
        world.backward(lambda rank, s=step, m=model: mse(m, s, rank))
        world.step(optimizer)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        kept.append((model, optimizer))
        if isinstance(world, Alone):
            world.optimizers.clear()
    return state.values()


def grouped(world):
    model = Net()
    lists = [[model.third.bias, model.first.weight], list(model.second.parameters())]
    for groups in (2, lists, 100):
        options = {"groups": groups}
        optimizer = world.wrap(sgd(model), model.named_parameters(), **options)
        for step in range(2):
            optimizer.zero_grad()
            world.backward(lambda rank, s=step: mse(model, s, rank))
            world.step(optimizer)
    return model.parameters()


SCENARIOS = (
    two_models,
    two_optimizers,
    optimizers_in_turn,
    branches,
    clearing,
    recreated,
    grouped,
)


def check(found, expected):
    for a, b in zip(found, expected):
        if hvd.size() == 2:
            assert torch.equal(a, b), (a - b).abs().max()
        else:
            assert (a - b).abs().max() < 1e-5


def rank_retained_graph():
    """The backward pass over one graph twice, in one step of two passes."""
    results = []
    for passes in (1, 2):
        model = Net()
        optimizer = hvd.DistributedOptimizer(
            sgd(model), model.named_parameters(), backward_passes_per_step=passes
        )
        for step in range(3):
            optimizer.zero_grad()
            loss = mse(model, step, hvd.rank())
            if passes == 2:
                loss.backward(retain_graph=True)
                loss.backward()
            else:
                (loss * 2).backward()
            optimizer.step()
        results.append([p.detach().clone() for p in model.parameters()])
    check_near(results[1], results[0], 1e-6)


def rank_compiled():
    """A compiled model: the same hooks, the same bits. aot_eager needs no C++ compiler."""
    results = []
    for compiled in (False, True):
        model = Net()
        run = torch.compile(model, backend="aot_eager") if compiled else model
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
        for step in range(3):
            optimizer.zero_grad()
            mse(run, step, hvd.rank()).backward()
            optimizer.step()
        results.append([p.detach().clone() for p in model.parameters()])
    check_near(results[1], results[0], 1e-6)


def rank_in_a_graph():
    """Collectives in a program that is compiled: outside of its graphs, with gradients."""
    size, rank = hvd.size(), hvd.rank()
    ones = torch.ones(2, requires_grad=True)

    def program(x):
        twice = hvd.allreduce(2 * x, op=hvd.Sum)
        handle = hvd.allgather_async(x.detach() + rank)
        return (twice * twice).sum(), hvd.synchronize(handle) + 1

    for run in (program, torch.compile(program, backend="aot_eager")):
        ones.grad = None
        loss, gathered = run(ones)
        loss.backward()
        assert loss.item() == 2 * (2 * size) ** 2
        assert ones.grad.tolist() == [2 * (2 * size) * 2 * size] * 2
        assert gathered.tolist() == [2.0 + r for r in range(size) for _ in range(2)]
    results = []
    for compiled in (False, True):
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), hvd.SyncBatchNorm(3))
        torch.nn.init.ones_(model[0].weight)
        torch.nn.init.zeros_(model[0].bias)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            (model(x) ** 3).sum().backward()
            optimizer.step()

        run = torch.compile(step, backend="aot_eager") if compiled else step
        for i in range(3):
            run(torch.arange(20.0).reshape(5, 4) * (rank + 1 + i))
        results.append([*(p.detach() for p in model.parameters()), model[1].running_mean])
    check_near(results[1], results[0], 1e-6)


def embedding_loss(table, step, rank):
    rows = torch.randint(0, 10, (6,), generator=torch.Generator().manual_seed(10 * step + rank))
    return (table(rows[: 6 if rank == 0 or step != 2 else 0]) ** 2).sum()


def rank_sparse_gradients():
    """Sparse and as dense, against dense; in the second step a rank has no gradient at all."""
    results = []
    for sparse, as_dense in ((False, False), (True, False), (True, True)):
        torch.manual_seed(3)
        table = torch.nn.Embedding(10, 4, sparse=sparse)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=0.1),
            table.named_parameters(),
            sparse_as_dense=as_dense,
        )
        for step in range(4):
            optimizer.zero_grad()
            if step != 1 or hvd.rank() == 0:
                embedding_loss(table, step, hvd.rank()).backward()
            optimizer.step()
            if sparse:
                assert table.weight.grad.is_sparse  # again, where it went as a dense one
        results.append([table.weight.detach().clone()])
    check_near(results[1], results[0], 1e-6)
    check_near(results[2], results[0], 1e-6)


def rank_superseded():
    """Other options for the same parameters: the newer optimizer reduces, the older one says so."""
    model = Net()
    older = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    newer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Sum)
    mse(model, 0, hvd.rank()).backward()
    with pytest.raises(RuntimeError, match="newer DistributedOptimizer"):
        older.step()
    newer.step()
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(sgd(model), groups=[[model.first.bias, model.first.bias]])
    with pytest.raises(ValueError, match="list of lists"):
        hvd.DistributedOptimizer(sgd(model), groups=[model.first.bias])
    with pytest.warns(DeprecationWarning, match="groups="):
        hvd.DistributedOptimizer(sgd(model), num_groups=2)


def rank_training():
    for scenario in SCENARIOS:
        expected = [p.detach().clone() for p in scenario(Alone())]
        try:
            check([p.detach().clone() for p in scenario(Ranks())], expected)
        except AssertionError as error:
            raise AssertionError(f"{scenario.__name__}: {error}") from error
        gc.collect()
    rank_retained_graph()
    rank_compiled()
    rank_in_a_graph()
    rank_sparse_gradients()
    rank_superseded()


@pytest.mark.parametrize("nranks", RANKS)
def test_training(job, nranks):
    job(nranks, rank_training)
