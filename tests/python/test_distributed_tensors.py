# SPDX-License-Identifier: Apache-2.0
"""Which tensors torch.distributed's calls take: results in their own input, and what is refused."""

import itertools

import pytest
import torch
import torch.distributed as dist
from conftest import RANKS
from distributed_job import well

import halay.torch as hvd


def row(rank, count):
    return torch.arange(float(count)) * (rank + 1) + 10 * rank


def views(count, part, rank, size):
    """Pairs of an input of `count` elements and an output of `part`, which overlap, and where the
    output is in the memory of both."""
    for begin in (0, rank * part, count - part, 1):
        memory = torch.zeros(count + part + 1)
        yield memory[:count], memory[begin : begin + part]
    memory = torch.zeros(count + part)
    yield memory[part:], memory[part // 2 : part // 2 + part]  # partly before it


def every(later, call, *args):
    """A call at once, or by its work."""
    work = call(*args, async_op=later)
    if later:
        work.wait()


def rank_in_place():
    rank, size = dist.get_rank(), dist.get_world_size()
    for each, form in itertools.product((1, 4, 3000), (False, True)):
        whole = each * size
        rows = [row(r, whole) for r in range(size)]
        for given, out in views(whole, each, rank, size):
            given.copy_(rows[rank])
            inside = out.data_ptr() - given.data_ptr()
            every(form, dist.reduce_scatter_tensor, out, given)
            assert torch.equal(out, sum(rows).chunk(size)[rank])
            given[inside // 4 :][:each] = rows[rank][inside // 4 :][:each] if inside >= 0 else 0
            if inside >= 0:  # nothing else was touched
                assert torch.equal(given, rows[rank])
            given.copy_(rows[rank])
            every(form, dist.reduce_scatter, out, list(given.chunk(size)))
            assert torch.equal(out, sum(rows).chunk(size)[rank])
        for out, given in views(whole, each, rank, size):
            given.copy_(rows[rank][:each])
            every(form, dist.all_gather_into_tensor, out, given)
            assert torch.equal(out, torch.cat([r[:each] for r in rows]))
            given.copy_(rows[rank][:each])
            every(form, dist.all_gather, list(out.chunk(size)), given)
            assert torch.equal(out, torch.cat([r[:each] for r in rows]))
            given.copy_(rows[rank][:each])
            parts = list(out.chunk(size)) if rank == 0 else None
            every(form, dist.gather, given, parts, 0)
            assert rank or torch.equal(out, torch.cat([r[:each] for r in rows]))
        for given, out in views(whole, each, rank, size):
            given.copy_(rows[rank])
            parts = list(given.chunk(size)) if rank == 0 else None
            every(form, dist.scatter, out, parts, 0)
            assert torch.equal(out, rows[0].chunk(size)[rank])
        wanted = torch.cat([r.chunk(size)[rank] for r in rows])
        for shift in (0, 1, each):
            memory = torch.zeros(whole + shift)
            given, out = memory[:whole], memory[shift:]
            given.copy_(rows[rank])
            every(form, dist.all_to_all_single, out, given)
            assert torch.equal(out, wanted)
            given.copy_(rows[rank])
            outs, ins = list(out.chunk(size)), list(given.chunk(size))
            every(form, dist.all_to_all, outs, ins)
            assert torch.equal(out, wanted)

    in_place_otherwise()


def in_place_otherwise():
    """With other sizes for each, on some ranks only, coalesced."""
    rank, size = dist.get_rank(), dist.get_world_size()
    counts = [max(rank, s) + 1 for s in range(size)]  # as many in both directions, and uneven
    memory = torch.arange(float(sum(counts))) + 100 * rank
    out = memory if rank == 0 else torch.zeros_like(memory)
    dist.all_to_all_single(out, memory, counts, counts)
    at = [sum(max(s, d) + 1 for d in range(rank)) for s in range(size)]
    wanted = [torch.arange(float(n)) + a + 100 * s for s, (n, a) in enumerate(zip(counts, at))]
    assert torch.equal(out, torch.cat(wanted))
    buffers = [row(rank, 3 * size), row(rank, 5 * size)]
    wanted = [sum(row(r, len(b)) for r in range(size)).chunk(size)[rank] for b in buffers]
    with dist._coalescing_manager():
        for b in buffers:
            dist.reduce_scatter_tensor(b.chunk(size)[rank], b)
    for b, w in zip(buffers, wanted):
        assert torch.equal(b.chunk(size)[rank], w)
    with dist._coalescing_manager():
        for b in buffers:
            dist.all_gather_into_tensor(b, b.chunk(size)[rank])
    for b in buffers:
        assert torch.equal(b, sum(row(r, len(b)) for r in range(size)))
    whole = row(rank, 4 * size)  # in place on one rank only
    out = whole.chunk(size)[0] if rank == 0 else torch.zeros(4)
    dist.reduce_scatter_tensor(out, whole)
    assert torch.equal(out, sum(row(r, 4 * size) for r in range(size)).chunk(size)[rank])
    out = torch.zeros(4 * size)
    mine = out.chunk(size)[rank] if rank == 0 else torch.zeros(4)
    dist.all_gather_into_tensor(out, mine.fill_(rank))
    assert torch.equal(out, torch.arange(float(size)).repeat_interleave(4))


@pytest.mark.parametrize("nranks", [*RANKS, pytest.param(1, marks=pytest.mark.long)])
def test_in_place(tmp_path, nranks):
    well(tmp_path, nranks, rank_in_place)


def unwritable():
    """What has two elements in one place: stride 0, smaller steps than a row, a window."""
    yield torch.ones(1).expand(4)
    yield torch.ones(2, 1).expand(2, 3)
    yield torch.ones(4).as_strided((3, 2), (1, 1))
    yield torch.ones(16).as_strided((3, 3, 2), (2, 3, 1))


def calls_into(x, size):
    """Each call of torch.distributed that writes into x, by name."""
    many, whole = [x.clone() for _ in range(size)], torch.ones(size * x.numel())
    bad = [x, *many[1:]]
    yield "all_reduce", lambda **o: dist.all_reduce(x, **o)
    yield "broadcast", lambda **o: dist.broadcast(x, 0, **o)
    yield "reduce", lambda **o: dist.reduce(x, 0, **o)
    yield "all_gather", lambda **o: dist.all_gather(bad, x.clone(), **o)
    yield "reduce_scatter", lambda **o: dist.reduce_scatter_tensor(x, whole, **o)
    yield "reduce_scatter", lambda **o: dist.reduce_scatter(x, many, **o)
    yield "all_to_all", lambda **o: dist.all_to_all(bad, many, **o)
    if dist.get_rank() == 0:
        yield "gather", lambda **o: dist.gather(x.clone(), bad, 0, **o)
    yield "scatter", lambda **o: dist.scatter(x, many if dist.get_rank() == 0 else None, 0, **o)
    yield "recv", lambda **_: dist.irecv(x, (dist.get_rank() + 1) % size)
    yield "recv", lambda **_: dist.recv(x, (dist.get_rank() + 1) % size)
    yield "all_reduce", lambda **_: dist.all_reduce_coalesced([torch.ones(2), x])


def rank_unwritable():
    """All are refused at once, and nothing was sent: the next call is right."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for x in unwritable():
        for name, call in calls_into(x, size):
            for form in (False, True):
                with pytest.raises(ValueError, match=rf"halay {name}: .*share memory.*clone\(\)"):
                    call(async_op=form)
        with pytest.raises(ValueError, match="share memory"), dist._coalescing_manager():
            dist.all_reduce(torch.ones(3))
            dist.all_reduce(x)
        dist.distributed_c10d._world.pg_coalesce_state.clear()
    good = torch.ones(40).as_strided((2, 2), (3, 2))  # of odd steps, but each for itself
    dist.all_reduce(good)
    assert (good == size).all()
    data = torch.full((5,), rank + 1.0)
    dist.all_reduce(data)
    assert (data == size * (size + 1) / 2).all()
    source = torch.full((1,), 3.0).expand(4)  # what is only read may be expanded
    out = torch.zeros(4 * size)
    dist.all_gather_into_tensor(out, source)
    assert (out == 3).all()
    with torch.inference_mode():
        inference = torch.ones(4, 4).t()[:, ::2]
    work = dist.all_reduce(inference, async_op=True)
    assert work.wait() and (inference == size).all()


def strange():
    """Tensors without memory of their own, and a word of what is said."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.tensor import DTensor, Replicate

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    yield DTensor.from_local(torch.ones(3), mesh, [Replicate()]), "DTensor.*to_local"
    with FakeTensorMode():
        yield torch.ones(3), "FakeTensor.*traced"
    yield torch.ones(3, device="meta"), "device meta"
    parts = [torch.ones(2), torch.ones(3)]
    yield torch.nested.nested_tensor(parts), "NestedTensor.*values"
    yield torch.nested.nested_tensor(parts, layout=torch.jagged), "NestedTensor.*values"
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    yield freed, "storage was freed"
    yield torch._efficientzerotensor(3), "zeros.*clone"

    class Own(torch.Tensor):
        @staticmethod
        def __new__(cls, inside):
            return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("nobody has to ask it")

    yield Own(torch.ones(3)), "Own.*wraps"


def rank_strange():
    size = dist.get_world_size()
    hvd_calls = (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.reducescatter, hvd.alltoall)
    for x, words in strange():
        for call in (dist.all_reduce, dist.broadcast, dist.isend):
            with pytest.raises((TypeError, ValueError), match=words):
                call(x, *[(dist.get_rank() + 1) % size] * (call is not dist.all_reduce))
        for call in (*hvd_calls, lambda x, name: hvd.broadcast(x, 0, name=name)):
            with pytest.raises((TypeError, ValueError), match=words):
                call(x, name="strange")

    def inside(x):
        dist.all_reduce(x)
        return x.sum()

    with pytest.raises(ValueError, match=r"torch\.func"):
        torch.func.grad(inside)(torch.ones(3))


def rank_waited():
    """Results of functional collectives are waited for, in inputs and in outputs."""
    import torch.distributed._functional_collectives as functional

    rank, size = dist.get_rank(), dist.get_world_size()

    def late(value=1.0):
        return functional.all_reduce(torch.full((6,), value), "sum", dist.group.WORLD)

    y = late()
    dist.all_reduce(y)
    assert y.tolist() == [size * size] * 6
    y = late(rank + 0.0)
    dist.broadcast(y, 0)
    assert y.tolist() == [size * (size - 1) / 2] * 6
    out = torch.zeros(6 * size)
    dist.all_gather_into_tensor(out, late())
    assert (out == size).all()
    lists = [torch.zeros(6) for _ in range(size)]
    dist.all_gather(lists, late())
    assert all((one == size).all() for one in lists)
    out = late()
    dist.reduce_scatter(out, [late() for _ in range(size)])
    assert out.tolist() == [size * size] * 6
    dist.all_to_all([late(0.0) for _ in range(size)], [late() for _ in range(size)])
    works = [dist.isend(late(), (rank + 1) % size), dist.irecv(got := late(0.0), (rank - 1) % size)]
    for work in works:
        work.wait()
    assert got.tolist() == [size] * 6
    assert hvd.allreduce(late(), op=hvd.Sum, name="a").tolist() == [size * size] * 6
    y = late()
    hvd.allreduce_(y, op=hvd.Sum, name="b")
    assert y.tolist() == [size * size] * 6
    hvd.broadcast_(y := late(rank + 0.0), 0, name="c")
    assert y.tolist() == [size * (size - 1) / 2] * 6
    assert hvd.allgather(late(), name="d").tolist() == [size] * 6 * size
    assert hvd.alltoall(late(), name="e").tolist() == [size] * 6


def rank_moved_and_scaled():
    moved_bytes()
    scaled_sums()


def moved_bytes():
    rank, size = dist.get_rank(), dist.get_world_size()
    kinds = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    for kind in [getattr(torch, k) for k in (*kinds, "float4_e2m1fn_x2") if hasattr(torch, k)]:

        def made(r, n=size, kind=kind):
            return (torch.arange(n, dtype=torch.uint8) + 50 * r + 1).view(kind)

        def same(a, b):
            return torch.equal(a.view(torch.uint8), b.view(torch.uint8))

        data = made(rank)
        dist.broadcast(data, size - 1)
        assert same(data, made(size - 1))
        out = torch.zeros(size * size, dtype=torch.uint8).view(kind)
        dist.all_gather_into_tensor(out, made(rank))
        assert same(out, torch.cat([made(r) for r in range(size)]))
        out = [torch.zeros(size, dtype=torch.uint8).view(kind) for _ in range(size)]
        dist.all_gather(out, made(rank))
        assert all(same(o, made(r)) for r, o in enumerate(out))
        dist.scatter(data, out if rank == 0 else None, 0)
        assert same(data, made(rank))
        into = out if rank == 0 else None
        dist.gather(data, into, 0)
        got = torch.zeros(size, dtype=torch.uint8).view(kind)
        dist.all_to_all_single(got, made(rank))
        assert same(got, torch.cat([made(r)[rank : rank + 1] for r in range(size)]))
        works = [dist.isend(made(rank), (rank + 1) % size), dist.irecv(got, (rank - 1) % size)]
        for work in works:
            work.wait()
        assert same(got, made((rank - 1) % size))
        with pytest.raises(TypeError, match="float"):
            dist.all_reduce(data)


def scaled_sums():
    """PREMUL_SUM: each rank's values times a factor, then the sum; inputs stay as they are."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for factor in (0.5, torch.tensor([2.0])):
        op, times = dist._make_nccl_premul_sum(factor), float(factor)
        wanted = times * size * (size + 1) / 2
        data = torch.full((6,), rank + 1.0)
        dist.all_reduce(data, op)
        assert data.tolist() == [wanted] * 6
        data = torch.full((6,), rank + 1.0)
        dist.reduce(data, 1, op)
        assert data.tolist() == [wanted if rank == 1 else rank + 1.0] * 6
        whole, part = torch.full((2 * size,), rank + 1.0), torch.zeros(2)
        dist.reduce_scatter_tensor(part, whole, op)
        assert part.tolist() == [wanted] * 2 and (whole == rank + 1).all()
        with pytest.raises(ValueError, match="PREMUL_SUM of torch.int64"):
            dist.all_reduce(torch.ones(3, dtype=torch.int64), op)


def rank_refused_and_taken():
    for part in (rank_unwritable, rank_moved_and_scaled):
        part()
    hvd.init()
    for part in (rank_strange, rank_waited):
        part()
    hvd.shutdown()


@pytest.mark.parametrize("nranks", RANKS)
def test_refused_and_taken(tmp_path, nranks):
    well(tmp_path, nranks, rank_refused_and_taken, env={"HALAY_DEADLINE": "100"})
