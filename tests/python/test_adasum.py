# SPDX-License-Identifier: Apache-2.0
"""op=hvd.Adasum against a serial reference in numpy, on several ranks."""

import contextlib

import numpy
import pytest
import torch
from conftest import ODD_RANKS

import halay.torch as hvd
from halay.errors import HalayMismatch, HalayTimeout

pytestmark = pytest.mark.sampled

# Of the result's norm: the reference rounds once, as the product does.
TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.float32: 1e-6,
    torch.float64: 1e-13,
}


def pair(left, right):
    """Of (vector, ranks that it stands for)."""
    (a, m), (b, n) = left, right
    both, own, other = numpy.dot(a, b), numpy.dot(a, a), numpy.dot(b, b)
    of_a = 1 - m / (m + n) * both / own if own >= 1.5e-154 else 1.0
    of_b = 1 - n / (m + n) * both / other if other >= 1.5e-154 else 1.0
    return of_a * a + of_b * b, m + n


def reference(vectors):
    """Serial; neighbours are paired, one without a neighbour goes up as it is."""
    level = [(numpy.asarray(v, dtype=numpy.float64).reshape(-1), 1) for v in vectors]
    while len(level) > 1:
        up = [pair(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = up + level[len(level) & ~1 :]
    return level[0][0]


def inputs(shape, dtype, seed, nranks):
    """Of all ranks; the same on all."""
    made = torch.Generator().manual_seed(seed)
    common = torch.randn(shape, generator=made, dtype=torch.float64)
    own = [torch.randn(shape, generator=made, dtype=torch.float64) for _ in range(nranks)]
    return [(common + (r + 1) * one).to(dtype) for r, one in enumerate(own)]


def check(result, vectors, factor=1.0):
    expected = factor * reference([v.double().numpy() for v in vectors])
    found = result.double().numpy().reshape(-1)
    assert numpy.linalg.norm(found - expected) <= TOLERANCE[result.dtype] * numpy.linalg.norm(
        expected
    )
    for other in hvd.allgather(result.reshape(1, -1)):  # the same bits
        assert torch.equal(other, result.reshape(-1))


def rank_values():
    me, nranks = hvd.rank(), hvd.size()
    for dtype in TOLERANCE:
        for seed, shape in enumerate(((), (1,), (3,), (nranks - 1,), (7, 11), (4097,))):
            vectors = inputs(shape, dtype, seed, nranks)
            result = hvd.allreduce(vectors[me], op=hvd.Adasum)
            assert result.shape == vectors[me].shape and result.dtype == dtype
            check(result, vectors)
    vectors = inputs((5, 6), torch.float32, 99, nranks)
    gapped = vectors[me].t().contiguous().t()
    hvd.allreduce_(gapped, op=hvd.Adasum, prescale_factor=3.0, postscale_factor=0.5)
    check(gapped.contiguous(), vectors, 1.5)
    empty = hvd.allreduce(torch.empty(0, 3), op=hvd.Adasum)
    assert empty.shape == (0, 3)


def rank_special():
    """Parallel vectors give their mean, orthogonal ones their sum; zeros count for nothing."""
    me, nranks = hvd.rank(), hvd.size()
    ones = torch.full((10,), 3.0)
    assert torch.equal(hvd.allreduce(ones, op=hvd.Adasum), ones)
    multiple = hvd.allreduce((me + 1.0) * ones, op=hvd.Adasum)
    assert torch.allclose(multiple, ones * (nranks + 1) / 2, rtol=1e-6)
    own = torch.zeros(nranks)
    own[me] = me + 1.0
    expected = torch.arange(1.0, nranks + 1)
    assert torch.equal(hvd.allreduce(own, op=hvd.Adasum), expected)
    tiny = torch.full((9,), torch.finfo(torch.float32).tiny)
    assert torch.equal(hvd.allreduce(tiny, op=hvd.Adasum), tiny)
    zero = ones if me == nranks - 1 else torch.zeros(10)
    assert torch.equal(hvd.allreduce(zero, op=hvd.Adasum), ones)
    assert torch.equal(hvd.allreduce(torch.zeros(3), op=hvd.Adasum), torch.zeros(3))
    bad = hvd.allreduce(torch.full((3,), float("nan") if me == 0 else 1.0), op=hvd.Adasum)
    assert bad.isnan().all()


def rank_order():
    """Submitted in another order on each rank, of several types, with names and in a group."""
    me, nranks = hvd.rank(), hvd.size()
    dtypes, handles = list(TOLERANCE), {}
    for i in range(12):
        i = (i * 5 + me * 7) % 12
        vectors = inputs((50 * i + 1,), dtypes[i % 4], i, nranks)
        handles[i] = vectors, hvd.allreduce_async(vectors[me], name=f"t{i}", op=hvd.Adasum)
    for i in sorted(handles):
        vectors, handle = handles[i]
        check(hvd.synchronize(handle), vectors)
    groups = [inputs((n,), torch.float32, n, nranks) for n in (3, 1000)]
    found = hvd.grouped_allreduce([vectors[me] for vectors in groups], op=hvd.Adasum)
    for result, vectors in zip(found, groups):
        check(result, vectors)


def rank_subset():
    """A process set; its ranks are not the job's."""
    ranks = list(range(1, hvd.size()))
    some = hvd.add_process_set(ranks)
    if hvd.rank() in ranks:
        vectors = inputs((20,), torch.float64, 5, hvd.size())
        result = hvd.allreduce(vectors[hvd.rank()], op=hvd.Adasum, process_set=some)
        expected = reference([vectors[r].numpy() for r in ranks])
        assert numpy.allclose(result.numpy(), expected, rtol=1e-12)
    hvd.remove_process_set(some)


def rank_wrong():
    me = hvd.rank()
    with pytest.raises(TypeError, match="Adasum takes floating point"):
        hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.Adasum)
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.reducescatter(torch.ones(3), op=hvd.Adasum)
    held = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Adasum)
    with pytest.raises(ValueError, match="out already"):
        hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Adasum)
    hvd.synchronize(held)
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Adasum has no gradient"):
        hvd.allreduce(x, op=hvd.Adasum).sum().backward()

    good = hvd.allreduce_async(torch.ones(4), name="good", op=hvd.Adasum)
    with pytest.raises(HalayMismatch, match=r"'allreduce.bad'.*\(3,\) on rank 0.*\(4,\) on rank 1"):
        hvd.allreduce(torch.ones(3 + (me == 1)), name="bad", op=hvd.Adasum)
    with pytest.raises(HalayMismatch, match=r"float32.* on rank 0.*float64.* on rank 1"):
        hvd.allreduce(torch.ones(3, dtype=(torch.float32, torch.float64)[me == 1]), op=hvd.Adasum)
    assert torch.equal(hvd.synchronize(good), torch.ones(4))


MAKES = (
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    lambda parameters: torch.optim.Adam(parameters, lr=0.01),
)


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.ModuleList(
        [torch.nn.Linear(3, 5), torch.nn.Linear(5, 2), torch.nn.Linear(3, 2)]
    )


def loss_of(model, step, rank):
    """The last layer is used by rank 0 only."""
    x = torch.randn((4, 3), generator=torch.Generator().manual_seed(10 * step + rank))
    y = model[1](torch.tanh(model[0](x)))
    return ((y + model[2](x) if rank == 0 else y) ** 2).mean()


def serial_training(make, steps):
    """All ranks' optimizers in one process: each has its own state, and steps by itself."""
    models = [model_of(1) for _ in range(hvd.size())]
    optimizers = [make(model.parameters()) for model in models]
    for step in range(steps):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            for p in model.parameters():
                p.grad = torch.zeros_like(p)
            loss_of(model, step, rank).backward()
            model.starts = [p.detach().clone() for p in model.parameters()]
            optimizer.step()
        for i, ours in enumerate(zip(*(model.parameters() for model in models))):
            start = models[0].starts[i]
            change = reference([(p.detach() - start).double().numpy() for p in ours])
            with torch.no_grad():
                for p in ours:
                    p.copy_(start + torch.from_numpy(change).reshape(start.shape).float())
    return [p.detach() for p in models[0].parameters()]


def rank_optimizer():
    for make in MAKES:
        for compression, near in ((hvd.Compression.none, 1e-6), (hvd.Compression.fp16, 1e-3)):
            model = model_of(1)
            names = list(model.named_parameters()) if compression is hvd.Compression.none else None
            optimizer = hvd.DistributedOptimizer(
                make(model.parameters()), names, compression, op=hvd.Adasum
            )
            for step in range(5):
                optimizer.zero_grad()
                loss_of(model, step, hvd.rank()).backward()
                optimizer.step()
            for p, expected in zip(model.parameters(), serial_training(make, 5)):
                assert torch.allclose(p, expected, rtol=0, atol=near)
                for other in hvd.allgather(p.detach().reshape(1, -1)):
                    assert torch.equal(other, p.detach().reshape(-1))
    assert len(set(optimizer._parameter_names.values())) == 6
    with pytest.raises(AssertionError, match="skip_synchronize"), optimizer.skip_synchronize():
        pass
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
    before = [p.detach().clone() for p in model.parameters()]
    loss = optimizer.step(lambda: loss_of(model, 7, hvd.rank()))  # no gradients anew: the last ones
    assert loss > 0 and not torch.equal(before[0], model[0].weight)


def rank_adasum():
    rank_values()
    rank_special()
    rank_order()
    rank_subset()
    rank_wrong()
    rank_optimizer()
    for _ in range(3):  # the thread ends and begins with the job
        hvd.barrier()
        hvd.shutdown()
        hvd.init()
        assert torch.equal(hvd.allreduce(torch.ones(5), op=hvd.Adasum), torch.ones(5))


@pytest.mark.parametrize("nranks", [*ODD_RANKS, pytest.param(5, marks=pytest.mark.long)])
def test_adasum(job, nranks):
    job(nranks, rank_adasum)


def rank_missing():
    """The last rank has another name out, but not this one."""
    last = hvd.size() - 1
    if hvd.rank() == last:
        with pytest.raises(RuntimeError, match="'allreduce.own'"):
            hvd.allreduce(torch.ones(2), name="own", op=hvd.Adasum)
    else:
        with pytest.raises(HalayTimeout, match=rf"'allreduce.x'.*not submitted by rank {last} \("):
            hvd.allreduce(torch.ones(2), name="x", op=hvd.Adasum)
    hvd.shutdown()


def test_a_rank_that_does_not_submit_is_named(job):
    job(3, rank_missing, env={"HALAY_DEADLINE": "4"})


def rank_left_out():
    """It leaves while a tensor is out: it does not wait for the deadline, and its peer is told."""
    handle = hvd.allreduce_async(torch.ones(2), name="x", op=hvd.Adasum) if hvd.rank() == 1 else 0
    if handle:
        with contextlib.suppress(RuntimeError):  # it may say that something was out
            hvd.shutdown()
        return
    with pytest.raises(RuntimeError, match="rank 1"):
        hvd.allreduce(torch.ones(2), name="y", op=hvd.Adasum)
    hvd.shutdown()


def test_a_rank_that_leaves(job):
    job(2, rank_left_out, env={"HALAY_DEADLINE": "60"}, timeout=50)


def test_alone(alone):
    x = torch.randn(7)
    assert torch.equal(alone.allreduce(x, op=hvd.Adasum), x)
    assert torch.equal(alone.allreduce(x, op=hvd.Adasum, postscale_factor=2.0), 2 * x)
