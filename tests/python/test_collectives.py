# SPDX-License-Identifier: Apache-2.0
"""Collectives on several ranks, against a reference that each rank computes by itself."""

import functools
import operator
import threading
import time

import pytest
import torch
from conftest import ODD_RANKS

import halay.torch as hvd

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
WIDE = [getattr(torch, n) for n in ("uint16", "uint32", "uint64") if hasattr(torch, n)]


def small(rank, dtype, shape=(5, 7)):
    """Small integers, different on each rank: sums and products are exact in every dtype."""
    generator = torch.Generator().manual_seed(1000 + rank)
    low = 0 if dtype in (torch.uint8, *WIDE) else -3
    if dtype.is_complex:
        parts = torch.randint(-3, 4, (*shape, 2), generator=generator)
        return torch.view_as_complex(parts.double()).to(dtype)
    return torch.randint(low, 4, shape, generator=generator).to(dtype)


def each(dtype, shape=(5, 7)):
    return [small(rank, dtype, shape) for rank in range(hvd.size())]


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    # Some unsigned types have no == in every torch.
    assert found.contiguous().view(torch.uint8).tolist() == (
        expected.contiguous().view(torch.uint8).tolist()
    ), f"{found} is not {expected}"


def times_reciprocal(total, nranks):
    """As Horovod 0.28.1: times 1/size in float32 (float64 in float64), rounded to the dtype."""
    if total.is_complex():
        return torch.view_as_complex(times_reciprocal(torch.view_as_real(total), nranks))
    compute = torch.float64 if total.dtype == torch.float64 else torch.float32
    return (total.to(compute) * torch.tensor(1.0 / nranks, dtype=compute)).to(total.dtype)


def rank_allreduce():
    me = hvd.rank()
    for dtype in FLOATS + INTEGERS + COMPLEX:
        tensors = each(dtype)
        total = functools.reduce(operator.add, tensors)
        same(hvd.allreduce(tensors[me], op=hvd.Sum), total)
        product = functools.reduce(operator.mul, tensors)
        same(hvd.allreduce(tensors[me], op=hvd.Product), product)
        in_place = tensors[me].clone()
        assert hvd.allreduce_(in_place, op=hvd.Sum) is in_place
        same(in_place, total)
        same(tensors[me], small(me, dtype))
        if not dtype.is_complex:
            same(hvd.allreduce(tensors[me], op=hvd.Min), functools.reduce(torch.minimum, tensors))
            same(hvd.allreduce(tensors[me], op=hvd.Max), functools.reduce(torch.maximum, tensors))
    for dtype in WIDE:
        total = functools.reduce(operator.add, each(torch.int64)).abs()
        mine = total.to(dtype) if me == 0 else torch.zeros(5, 7, dtype=dtype)
        same(hvd.allreduce(mine, op=hvd.Sum), total.to(dtype))


def rank_average():
    me, nranks = hvd.rank(), hvd.size()
    for dtype in FLOATS + COMPLEX:
        tensors = each(dtype)
        total = functools.reduce(operator.add, tensors)
        same(hvd.allreduce(tensors[me]), times_reciprocal(total, nranks))
    for dtype in INTEGERS:
        tensors = each(dtype)
        total = functools.reduce(operator.add, tensors)
        truncated = torch.div(total, nranks, rounding_mode="trunc")
        same(hvd.allreduce(tensors[me]), truncated)
        same(hvd.allreduce(tensors[me], op=hvd.Average), truncated)


def rank_bool():
    mine = torch.tensor([hvd.rank() == 0, True, False])
    same(hvd.allreduce(mine, op=hvd.Min), torch.tensor([False, True, False]))
    same(hvd.allreduce(mine, op=hvd.Product), torch.tensor([False, True, False]))
    same(hvd.allreduce(mine, op=hvd.Max), torch.tensor([True, True, False]))
    masks = [torch.tensor([r == 0, True, False]) for r in range(hvd.size())]
    same(hvd.allgather(mine), torch.cat(masks))


def rank_scales():
    me = hvd.rank()
    for dtype in FLOATS:
        total = functools.reduce(operator.add, each(dtype))
        same(hvd.allreduce(small(me, dtype), op=hvd.Sum, prescale_factor=0.5), total * 0.5)
        same(hvd.allreduce(small(me, dtype), op=hvd.Sum, postscale_factor=4.0), total * 4)
        found = hvd.allreduce(small(me, dtype), prescale_factor=4.0, postscale_factor=hvd.size())
        same(found, total * 4)
    for dtype in INTEGERS:
        total = functools.reduce(operator.add, each(dtype, (3,)))
        mine = small(me, dtype, (3,))
        same(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0), total * 2)
        same(
            hvd.allreduce(mine, op=hvd.Sum, postscale_factor=0.5),
            torch.div(total, 2, rounding_mode="trunc"),
        )


def rank_float_sums():
    """The same bits on all ranks, and not further off than decisions allow: steps * u * sum|x|."""
    nranks = hvd.size()
    units = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24}
    units[torch.float64] = 2**-53
    for dtype, unit in units.items():
        for count in (1, 17, 1000, 100_003):
            tensors = [
                torch.randn(count, generator=torch.Generator().manual_seed(r)).to(dtype)
                for r in range(nranks)
            ]
            found = hvd.allreduce(tensors[hvd.rank()], op=hvd.Sum)
            exact = functools.reduce(operator.add, [t.double() for t in tensors])
            magnitude = functools.reduce(operator.add, [t.double().abs() for t in tensors])
            assert ((found.double() - exact).abs() <= nranks * unit * magnitude).all()
            for other in hvd.allgather(found.view(torch.uint8)).chunk(nranks):
                assert torch.equal(other, found.view(torch.uint8))


def rank_compression():
    exact = torch.tensor([1.0, 2.5, -3.0]) * (hvd.rank() + 1)
    factor = sum(range(1, hvd.size() + 1))
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        found = hvd.allreduce(exact, op=hvd.Sum, compression=compression)
        same(found, torch.tensor([1.0, 2.5, -3.0]) * factor)
    fine = torch.tensor([1.0 + 2**-10, 3e38])
    half = hvd.allreduce(fine, op=hvd.Max, compression=hvd.Compression.fp16)
    brain = hvd.allreduce(fine, op=hvd.Max, compression=hvd.Compression.bf16)
    assert half.tolist() == [1.0 + 2**-10, float("inf")]
    assert brain[0].item() == 1.0 and brain[1].item() == pytest.approx(3e38, rel=0.01)
    whole = torch.tensor([2**40, 1])
    same(hvd.allreduce(whole, op=hvd.Max, compression=hvd.Compression.fp16), whole)


def rank_reductions():
    rank_allreduce()
    rank_average()
    rank_bool()
    rank_scales()
    rank_float_sums()
    rank_compression()


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_allreduce(job, nranks):
    job(nranks, rank_reductions)


def rank_orders():
    """Every rank submits in its own order, and waits in another: names decide."""
    me, nranks = hvd.rank(), hvd.size()
    shapes = {f"n{i}": (i * 37 % 101 + 1,) for i in range(40)}
    for turn in range(3):
        names = sorted(shapes)
        torch.manual_seed(100 * turn + me)
        mine = [names[i] for i in torch.randperm(len(names))]
        handles = {
            name: hvd.allreduce_async(small(me, torch.float32, shapes[name]), name=name, op=hvd.Sum)
            for name in mine
        }
        for name in reversed(mine):
            tensors = [small(r, torch.float32, shapes[name]) for r in range(nranks)]
            same(hvd.synchronize(handles[name]), functools.reduce(operator.add, tensors))


def rank_kinds_share_names():
    """One name for three kinds at a time: they do not meet."""
    me, nranks = hvd.rank(), hvd.size()
    reduce_ = hvd.allreduce_async(torch.ones(3), name="x", op=hvd.Sum)
    gather = hvd.allgather_async(torch.full((1,), float(me)), name="x")
    cast = hvd.broadcast_async(torch.full((2,), float(me)), nranks - 1, name="x")
    assert hvd.synchronize(cast).tolist() == [nranks - 1] * 2
    assert hvd.synchronize(gather).tolist() == list(range(nranks))
    assert hvd.synchronize(reduce_).tolist() == [nranks] * 3


def rank_poll():
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
        for _ in range(20):
            assert hvd.poll(handle) is False
            time.sleep(0.002)
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
    end = time.monotonic() + 20
    while not hvd.poll(handle):  # nobody calls synchronize: progress comes from elsewhere
        assert time.monotonic() < end
        time.sleep(0.001)
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 3
    # Done long before it is asked for, on whichever rank came last: still False at first.
    for call in (
        lambda: hvd.allreduce_async(torch.ones(3), op=hvd.Sum),
        lambda: hvd.allreduce_async(torch.ones(3), op=hvd.Adasum),
        lambda: hvd.grouped_allreduce_async([torch.ones(3), torch.ones(2)], op=hvd.Sum),
    ):
        handles = [call(), call()]
        time.sleep(0.1)
        assert hvd.poll(handles[1]) is False
        while not all(map(hvd.poll, handles)):
            assert time.monotonic() < end + 20
        for handle in handles:
            hvd.synchronize(handle)


def rank_duplicate():
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Sum)
        with pytest.raises(hvd.DuplicateName, match=r"allreduce\.twice"):
            hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Sum)
    hvd.barrier()
    if hvd.rank() != 0:
        first = hvd.allreduce_async(torch.ones(3), name="twice", op=hvd.Sum)
    assert hvd.synchronize(first).tolist() == [hvd.size()] * 3
    assert hvd.allreduce(torch.ones(1), name="twice", op=hvd.Sum).item() == hvd.size()


def rank_gil():
    """While this rank waits for a late one, its other Python threads run."""
    ticks, done = [0], threading.Event()

    def count():
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    hvd.barrier()
    if hvd.rank() == hvd.size() - 1:
        time.sleep(0.5)
    before = ticks[0]
    hvd.allreduce(torch.ones(10), name="late")
    during = ticks[0] - before
    done.set()
    thread.join()
    assert hvd.rank() == hvd.size() - 1 or during > 20


def rank_barrier():
    marks = []
    for late in range(hvd.size()):
        if hvd.rank() == late:
            time.sleep(0.3)
        reached = time.monotonic()
        hvd.barrier()
        marks.append((reached, time.monotonic()))
    return marks


def rank_names():
    rank_orders()
    rank_kinds_share_names()


def rank_handles():
    rank_poll()
    rank_duplicate()
    rank_gil()


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_names(job, nranks):
    job(nranks, rank_names)


def test_handles(job):
    job(2, rank_handles)


def test_barrier(job):
    for marks in zip(*job(2, rank_barrier)):
        last_in = max(reached for reached, _ in marks)
        assert all(left >= last_in for _, left in marks)


def rank_allgather():
    me, nranks = hvd.rank(), hvd.size()
    for dtype in [*FLOATS, *COMPLEX, *INTEGERS, *WIDE, torch.bool]:
        same(hvd.allgather(small(me, dtype, (2, 3))), torch.cat(each(dtype, (2, 3))))
    # Different first dimensions, nothing at all from some, from all.
    shapes = [(r * 5 % 7, 2, 3) for r in range(nranks)]
    same(
        hvd.allgather(small(me, torch.float32, shapes[me])),
        torch.cat([small(r, torch.float32, shapes[r]) for r in range(nranks)]),
    )
    assert hvd.allgather(torch.empty(0, 4)).shape == (0, 4)
    assert hvd.allgather(torch.empty(me + 1, 0)).shape == (sum(range(nranks + 1)), 0)
    only_last = torch.arange(10.0) if me == nranks - 1 else torch.empty(0)
    same(hvd.allgather(only_last), torch.arange(10.0))
    handles = [hvd.allgather_async(torch.full((me + 1,), i)) for i in range(10)]
    for i, handle in enumerate(handles):
        same(hvd.synchronize(handle), torch.full((sum(range(nranks + 1)),), i))


def rank_broadcast():
    me, nranks = hvd.rank(), hvd.size()
    for dtype in [*FLOATS, *COMPLEX, *INTEGERS, *WIDE, torch.bool]:
        for root in range(nranks):
            mine = small(me, dtype)
            same(hvd.broadcast(mine, root), small(root, dtype))
            same(mine, small(me, dtype))
            assert hvd.broadcast_(mine, root) is mine
            same(mine, small(root, dtype))
    handles = [hvd.broadcast_async(torch.full((3,), me), i % nranks) for i in range(10)]
    for i, handle in enumerate(handles):
        same(hvd.synchronize(handle), torch.full((3,), i % nranks))
    big = torch.arange(300_000.0) * (me + 1)
    same(hvd.broadcast(big, nranks - 1), torch.arange(300_000.0) * nranks)


def rank_gather_and_broadcast():
    rank_allgather()
    rank_broadcast()


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_gather_and_broadcast(job, nranks):
    job(nranks, rank_gather_and_broadcast)
