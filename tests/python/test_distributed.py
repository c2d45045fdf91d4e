# SPDX-License-Identifier: Apache-2.0
"""torch.distributed's calls over the back end "halay", compared with values computed here."""

import datetime
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import ODD_RANKS, environment, run
from distributed_job import well

from halay.errors import HalayError, HalayTimeout

TYPES = [
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64",
]  # fmt: skip


def value(rank, count, dtype):
    """Small whole numbers that differ by rank and place: every sum of them is exact."""
    return ((torch.arange(count) * (rank + 2) + rank) % 7 + 1).to(getattr(torch, dtype))


def expected(op, tensors):
    wide = torch.stack([t.to(torch.int64) for t in tensors])
    n = len(tensors)
    return {
        "SUM": lambda: wide.sum(0),
        "AVG": lambda: wide.sum(0).double() / n,
        "PRODUCT": lambda: wide.prod(0),
        "MIN": lambda: wide.amin(0),
        "MAX": lambda: wide.amax(0),
        "BAND": lambda: fold(wide, torch.bitwise_and),
        "BOR": lambda: fold(wide, torch.bitwise_or),
        "BXOR": lambda: fold(wide, torch.bitwise_xor),
    }[op]()


def fold(rows, function):
    result = rows[0]
    for row in rows[1:]:
        result = function(result, row)
    return result


def ops_of(dtype):
    whole = not getattr(torch, dtype).is_floating_point
    more = ["BAND", "BOR", "BXOR"] if whole else ["AVG"]
    return ["SUM", "PRODUCT", "MIN", "MAX", *more]


def same(found, wanted):
    if found.dtype in (torch.float16, torch.bfloat16):
        # AVG is one rounded division; the sums before it are small whole numbers.
        assert torch.equal(found, wanted.float().to(found.dtype)), (found, wanted)
    else:
        assert torch.equal(found.double(), wanted.double().to(found.dtype).double()), (
            found,
            wanted,
        )


def rank_reductions():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in TYPES:
        for op in ops_of(dtype):
            reduce_op = getattr(dist.ReduceOp, op)
            for count in (0, 1, 37, 4096):
                inputs = [value(r, count, dtype) for r in range(size)]
                wanted = expected(op, inputs)
                data = inputs[rank].clone()
                dist.all_reduce(data, reduce_op)
                same(data, wanted)
                data = inputs[rank].clone()
                dist.reduce(data, size - 1, reduce_op)
                same(data, wanted if rank == size - 1 else inputs[rank])
                whole = [value(r, count * size, dtype) for r in range(size)]
                wanted = expected(op, whole)[count * rank : count * (rank + 1)]
                part = torch.empty(count, dtype=getattr(torch, dtype))
                dist.reduce_scatter_tensor(part, whole[rank], reduce_op)
                same(part, wanted)
                part.zero_()
                dist.reduce_scatter(part, list(whole[rank].chunk(size)), reduce_op) if count else 0
                same(part, wanted if count else part)
    for op, wanted in (("SUM", True), ("MAX", True), ("MIN", size == 1), ("PRODUCT", size == 1)):
        flags = torch.tensor([rank == 0, False, True])
        dist.all_reduce(flags, getattr(dist.ReduceOp, op))
        assert flags.tolist() == [wanted, False, True]
    with pytest.raises(ValueError, match="AVG"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), dist.ReduceOp.AVG)
    with pytest.raises(ValueError, match="BAND"):
        dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND)


def rank_moves():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in [*TYPES, "bool", "complex64"]:
        mine = [value(r, 11, "int64").to(getattr(torch, dtype)) for r in range(size)]
        for root in range(size):
            data = mine[rank].clone()
            dist.broadcast(data, root)
            assert torch.equal(data, mine[root])
            out = [torch.zeros_like(data) for _ in range(size)]
            dist.gather(mine[rank], out if rank == root else None, root)
            assert rank != root or all(torch.equal(a, b) for a, b in zip(out, mine))
            data = torch.zeros_like(data)
            dist.scatter(data, mine if rank == root else None, root)
            assert torch.equal(data, mine[rank])
        out = [torch.zeros_like(data) for _ in range(size)]
        dist.all_gather(out, mine[rank])
        assert all(torch.equal(a, b) for a, b in zip(out, mine))
        whole = torch.zeros(size, 11, dtype=data.dtype)
        dist.all_gather_into_tensor(whole, mine[rank])
        assert torch.equal(whole, torch.stack(mine))
        whole = torch.zeros(size, 11, dtype=data.dtype)
        whole[rank] = mine[rank]
        dist.all_gather_into_tensor(whole, whole[rank])
        assert torch.equal(whole, torch.stack(mine))


def rank_uneven():
    """Lists whose parts have different sizes, tensors that are not contiguous, all-to-all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.zeros(r, 2) for r in range(size)]
    dist.all_gather(parts, torch.full((rank, 2), rank + 0.5))
    assert all(torch.equal(p, torch.full((r, 2), r + 0.5)) for r, p in enumerate(parts))
    mine = torch.zeros(rank + 1)
    dist.reduce_scatter(mine, [torch.full((r + 1,), rank + r + 1.0) for r in range(size)])
    assert mine.tolist() == [size * (size - 1) / 2 + size * (rank + 1.0)] * (rank + 1)
    sent = [torch.full((r + 2 * rank, 3), 10 * rank + r) for r in range(size)]
    got = [torch.zeros(rank + 2 * s, 3, dtype=torch.int64) for s in range(size)]
    dist.all_to_all(got, sent)
    assert all((g == 10 * s + rank).all() for s, g in enumerate(got))
    out = torch.zeros(sum(len(g) for g in got), 3, dtype=torch.int64)
    rows = [len(g) for g in got], [len(s) for s in sent]
    dist.all_to_all_single(out, torch.cat(sent), *rows)
    assert torch.equal(out, torch.cat(got))
    out = torch.zeros(size, dtype=torch.int32)
    dist.all_to_all_single(out, torch.arange(size, dtype=torch.int32) + 100 * rank)
    assert out.tolist() == [100 * s + rank for s in range(size)]
    for make in (lambda: torch.zeros(6, 4).t(), lambda: torch.zeros(2, 3, 4, 4)[:, :, ::2]):
        strided = make()
        strided += rank + 1
        dist.all_reduce(strided)
        assert (strided == size * (size + 1) / 2).all()
        dist.broadcast(strided.mul_(rank + 1), size - 1)
        assert (strided == size * size * (size + 1) / 2).all()


def rank_pairs():
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for _ in range(20):
        got = torch.zeros(1000)
        ops = [
            dist.P2POp(dist.isend, torch.full((1000,), float(rank)), right),
            dist.P2POp(dist.irecv, got, left),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert (got == left).all()
    if rank == 0:
        dist.send(torch.arange(5), 1)
    elif rank == 1:
        got = torch.zeros(5, dtype=torch.int64)
        dist.recv(got, 0)
        assert got.tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(NotImplementedError, match="sender"):
            dist.recv(got)
    messages_to_oneself(rank)
    sources(rank, size)
    # Each tag is an order of its own, both ways, in the default group and in another one.
    for group in (None, dist.new_group(range(size))):
        got = {tag: torch.zeros(3) for tag in range(4)}
        works = [dist.isend(torch.full((3,), 10.0 * tag + rank), right, group, tag) for tag in got]
        works += [dist.irecv(got[tag], left, group, tag) for tag in reversed(got)]
        for work in works:
            work.wait()
        assert all((got[tag] == 10 * tag + left).all() for tag in got)


def sources(rank, size):
    """A receive says who sends, as the group counts its ranks; other works refuse as torch's do."""
    for first in (0, size - 2):
        group = dist.new_group([first, first + 1])
        if rank not in (first, first + 1):
            continue
        peer = 2 * first + 1 - rank
        for tag in (0, 5):
            works = [dist.isend(torch.ones(1), peer, group, tag)]
            works += [dist.irecv(torch.zeros(1), peer, group, tag)]
            for _ in range(2):  # before and after the end
                assert works[1].source_rank() == works[1]._source_rank() == peer - first
                with pytest.raises(RuntimeError, match="sourceRank"):
                    works[0].source_rank()
                for work in works:
                    work.wait()
        dist.isend(torch.ones(1), rank, group)
        assert dist.irecv(torch.zeros(1), rank, group)._source_rank() == rank - first
        with pytest.raises(RuntimeError, match="sourceRank"):
            dist.all_reduce(torch.ones(1), group=group, async_op=True)._source_rank()


def messages_to_oneself(rank):
    """In any order of send and receive, by tag; torch itself refuses the blocking calls."""
    for kinds in ((dist.isend, dist.irecv), (dist.irecv, dist.isend)):
        data, got = torch.arange(6.0).view(2, 3).t() + rank, torch.zeros(3, 2)
        ops = [dist.P2POp(kind, data if kind is dist.isend else got, rank) for kind in kinds]
        works = dist.batch_isend_irecv(ops)
        data.zero_()  # the send is done
        for work in works:
            assert work.wait() and work.is_completed()
        assert (got == torch.arange(6.0).view(2, 3).t() + rank).all()
    got = {tag: torch.zeros(1) for tag in (3, 7)}
    works = [dist.irecv(got[tag], rank, tag=tag) for tag in got]
    for tag in (7, 3):
        dist.isend(torch.full((1,), float(tag)), rank, tag=tag)
    for work in works:
        work.wait()
    assert all(got[tag].item() == tag for tag in got)
    dist.isend(torch.ones(2), rank)
    with pytest.raises(ValueError, match="sent itself 2 elements"):
        dist.irecv(torch.ones(3), rank).wait()
    late = dist.irecv(torch.ones(3), rank)
    with pytest.raises(HalayTimeout, match="not complete"):
        late.wait(datetime.timedelta(seconds=0.1))
    dist.isend(torch.zeros(3), rank)
    late.wait()
    with pytest.raises(ValueError, match=f"rank {dist.get_world_size()} is not a rank"):
        dist.group.WORLD.send([torch.ones(1)], dist.get_world_size(), 0)


def rank_asynchronous():
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) // 2
    many = [torch.full((1 + 97 * i,), rank + 1.0) for i in range(30)]
    works = [dist.all_reduce(t, async_op=True) for t in many]
    for work, tensor in reversed(list(zip(works, many))):
        assert work.wait() and work.is_completed() and work.is_success()
        assert (tensor == total).all()
    # Nobody waits: the thread completes it and runs the callbacks.
    data, seen = torch.full((10,), rank + 1.0), threading.Event()
    work = dist.all_reduce(data, async_op=True)
    future = work.get_future().then(lambda f: f.value()[0] * 2)
    future.add_done_callback(lambda _: seen.set())
    assert seen.wait(30)
    assert (future.value() == 2 * total).all() and work.is_completed()
    assert work.get_future().wait()[0] is work.result()[0]
    # A receive that was posted early does not keep a later call from being completed.
    late = torch.zeros(4)
    if rank == 1:
        early = dist.irecv(late, 0)
    data = torch.ones(3)
    assert (dist.all_reduce(data, async_op=True).get_future().wait()[0] == size).all()
    if rank == 0:
        dist.send(torch.ones(4), 1)
    if rank == 1:
        early.wait()
        assert (late == 1).all()
    # Waited for by two threads at once.
    work = dist.all_reduce(data, async_op=True)
    threads = [threading.Thread(target=work.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    # A wait with a time limit ends by it, and the call goes on.
    dist.barrier()
    if rank == 0:
        work = dist.barrier(async_op=True)
        begin = time.monotonic()
        with pytest.raises(HalayTimeout, match="still under way"):
            work.wait(datetime.timedelta(seconds=0.3))
        assert 0.2 < time.monotonic() - begin < 5
    else:
        time.sleep(1)
        work = dist.barrier(async_op=True)
    work.wait()


def rank_callbacks():
    """Callbacks that wait for a call of their own, one in the other, and for one that is late."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def again(depth):
        def callback(future):
            data = future.value()[0] * 2
            if depth == 0:
                return data
            work = dist.all_reduce(data, async_op=True)
            return work.get_future().then(again(depth - 1)).wait()

        return callback

    data = torch.ones(3)
    future = dist.all_reduce(data, async_op=True).get_future().then(again(5))
    assert future.wait().tolist() == [(2.0 * size) ** 6] * 3
    if size > 1 and rank < 2:
        got, done = torch.zeros(2), dist.all_reduce(data, async_op=True)
        late = dist.irecv(got, 0) if rank else None
        future = done.get_future().then(lambda _: late.get_future().wait() if rank else None)
        done.wait()
        if rank == 0:
            dist.send(torch.ones(2), 1)
        future.wait()
        assert rank == 0 or got.tolist() == [1, 1]
    else:
        dist.all_reduce(data)
    # Many at once, and all wait for a call that is done last.
    if rank == 0:
        dist.recv(data, 1)
        for i in range(21):
            dist.send(torch.full((2,), float(i)), 1)
    elif rank == 1:
        got = torch.zeros(21, 2)
        works = [dist.irecv(row, 0) for row in got]
        last = works[-1].get_future()
        futures = [w.get_future().then(lambda f: last.wait()[0] - f.value()[0]) for w in works[:-1]]
        dist.send(data, 0)
        assert [(20 - i, 20 - i) for i in range(20)] == [tuple(f.wait().tolist()) for f in futures]
    dist.barrier()


def rank_coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) / 2
    tensors = [torch.full((n,), rank + 1.0) for n in (1, 300, 5)]
    dist.all_reduce_coalesced(tensors)
    assert all((t == total).all() for t in tensors)
    for device in (None, torch.device("cpu")):
        outs = [torch.zeros(size * n) for n in (3, 4)]
        with dist._coalescing_manager(device=device, async_ops=True) as manager:
            for n, out in zip((3, 4), outs):
                dist.all_gather_into_tensor(out, torch.full((n,), rank + 1.0))
        manager.wait()
        for n, out in zip((3, 4), outs):
            assert torch.equal(out, torch.arange(1.0, size + 1).repeat_interleave(n))
        outs = [torch.zeros(n) for n in (3, 4)]
        with dist._coalescing_manager(device=device):
            for n, out in zip((3, 4), outs):
                dist.reduce_scatter_tensor(out, torch.full((size * n,), rank + 1.0))
        assert all((out == total).all() for out in outs)


def rank_sparse():
    """A sum of COO tensors, with values that are vectors, and without elements on one rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = torch.arange(rank + 1)
    at = torch.stack([rows, rows + 1])
    for values in (torch.full((rank + 1,), rank + 1.0), torch.full((rank + 1, 2), rank + 1.0)):
        mine = torch.sparse_coo_tensor(at, values, (9, 9, *values.shape[1:]))
        whole = mine.to_dense()
        dist.all_reduce(whole)
        work = dist.all_reduce(mine, async_op=True)
        assert work.wait() and torch.equal(mine.to_dense(), whole)
    mine = torch.sparse_coo_tensor(at[:, : rank and 1], torch.ones(rank and 1), (9, 9))
    dist.all_reduce(mine)
    assert mine.to_dense()[0, 1] == size - 1 and mine.to_dense().sum() == size - 1
    with pytest.raises(ValueError, match=r"differ in shape: rank 0 has \(9,"):
        dist.all_reduce(torch.sparse_coo_tensor(at, torch.ones(rank + 1), (9 + rank, 9)))
    with pytest.raises(ValueError, match="a sum only"):
        dist.all_reduce(mine, op=dist.ReduceOp.MAX)


def rank_told():
    """What torch asks of a back end; a profiler; a time limit that is set later."""
    world = dist.group.WORLD
    assert world._get_backend(torch.device("cpu")) is world
    with pytest.warns(UserWarning, match="nccl or gloo"):  # torch's own, which sets nothing
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=77))
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(4))
    assert "halay:allreduce" in {event.key for event in profile.key_averages()}
    shapes = (1, 2, 3, 4)
    outs = [[torch.zeros(n) for n in shapes] for _ in range(dist.get_world_size())]
    inputs = [torch.full((n,), 1.0 + dist.get_rank()) for n in shapes]
    dist.all_gather_coalesced(outs, inputs)
    for r, out in enumerate(outs):
        assert [t.tolist() for t in out] == [[1.0 + r] * n for n in shapes]
    with pytest.raises(ValueError, match="a list of 4 tensors, as many as go in, for each of"):
        dist.all_gather_coalesced([list(of) for of in zip(*outs)], inputs)


def rank_groups():
    rank, size = dist.get_rank(), dist.get_world_size()
    for _ in range(3):
        groups = [(dist.new_group(ranks), ranks) for ranks in ([0], [0, size - 1], range(size))]
        for group, ranks in groups:
            if rank in ranks:
                data = torch.tensor([rank + 1.0])
                dist.all_reduce(data, group=group)
                assert data.item() == sum(r + 1 for r in set(ranks))
                assert dist.get_backend(group) == "halay"
                assert dist.get_group_rank(group, rank) == list(ranks).index(rank)
                data = torch.tensor([float(rank)])
                dist.broadcast(data, max(ranks), group=group)
                assert data.item() == max(ranks)
        for group, ranks in groups[:2]:
            if rank in ranks:
                dist.destroy_process_group(group)
        if rank in (0, size - 1):  # made by its members alone
            two = sorted({0, size - 1})
            group = dist.new_group(two, use_local_synchronization=True)
            data = torch.tensor([rank + 1.0])
            dist.all_reduce(data, group=group)
            assert data.item() == sum(r + 1 for r in two)
            dist.destroy_process_group(group)
    rank_groups_of_groups()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    mesh = dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("a", "b"))
    data = torch.ones(2)
    dist.all_reduce(data, group=mesh.get_group("a"))
    assert data.tolist() == [size, size]
    import torch.distributed._functional_collectives as functional

    data = torch.full((2,), rank + 1.0)
    assert (functional.all_reduce(data, "sum", mesh["a"]) == size * (size + 1) / 2).all()
    whole = functional.all_gather_tensor(data, 0, mesh["a"])
    assert torch.equal(whole, torch.arange(1.0, size + 1).repeat_interleave(2))
    part = functional.reduce_scatter_tensor(torch.ones(size), "sum", 0, mesh["a"])
    assert part.tolist() == [size]


def total(group, rank):
    data = torch.tensor([rank + 1.0])
    dist.all_reduce(data, group=group)
    return data.item()


def rank_groups_of_groups():
    """Only ranks of the larger one make them; then all make others, which still fit."""
    rank, size = dist.get_rank(), dist.get_world_size()
    larger = dist.new_group([0, 1])
    if rank < 2:
        for _ in range(2):
            mine, _all = dist.new_subgroups(group_size=1, group=larger)
            assert total(mine, rank) == rank + 1
            mine, _all = dist.new_subgroups(group_size=2, group=larger)
            assert total(mine, rank) == 3
        with pytest.raises(ValueError, match=r"the ranks \[0, 1, 7\] are not among the 2"):
            larger.new_group([0, 1, 7], datetime.timedelta(seconds=60))
        turned = larger.new_group([1, 0], datetime.timedelta(seconds=60))
        assert turned.rank() == 1 - rank and total_of(turned, rank) == 3
    everyone = dist.new_group(range(size))
    assert total(everyone, rank) == size * (size + 1) / 2
    # torch splits where an accelerator is; this is what it calls then.
    members = [0, 1] if rank < 2 else list(range(2, size))
    half = dist.group.WORLD.split_group(members)
    assert total_of(half, rank) == sum(r + 1 for r in members)
    others = [r for r in range(size) if r != rank]
    assert dist.group.WORLD.split_group(others) is None and dist.group.WORLD.supports_splitting


def total_of(group, rank):
    """Of a group that torch does not know."""
    data = torch.tensor([rank + 1.0])
    group.allreduce([data]).wait()
    return data.item()


def rank_again(cycles):
    """destroy_process_group() and a second init, many times."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for i in range(cycles):
        data = torch.full((100,), rank + i + 0.0)
        dist.all_reduce(data)
        assert (data == size * (size - 1) / 2 + size * i).all()
        dist.destroy_process_group()
        assert all(t.name != "halay" for t in threading.enumerate())
        dist.init_process_group("halay", init_method="halay://")
    dist.barrier()
    if rank == 1:  # a thread waits in a call when the group is destroyed
        work = dist.all_reduce(torch.ones(5), async_op=True)
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(work.wait)
            time.sleep(0.1)
            dist.destroy_process_group()
            assert isinstance(waits.exception(), HalayError), waits.exception()
    else:
        dist.destroy_process_group()
    dist.init_process_group("halay", init_method="halay://")
    dist.barrier()


def rank_refusals():
    with pytest.raises(ValueError, match="device meta has no memory"):
        dist.all_reduce(torch.ones(3, device="meta"))
    with pytest.raises(ValueError, match="to_dense"):
        dist.broadcast(torch.eye(2).to_sparse(), 0)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        one = torch.zeros(2, dtype=dtype)
        many = torch.zeros(2 * dist.get_world_size(), dtype=dtype)
        for call in (
            lambda one=one: dist.all_reduce(one),
            lambda one=one: dist.reduce(one, 0),
            lambda one=one, many=many: dist.reduce_scatter_tensor(one, many),
        ):
            with pytest.raises(TypeError, match=rf"{dtype} is not supported.*tensor\.float"):
                call()
        sent = torch.full((2,), 3.0).to(dtype) if dist.get_rank() == 0 else one
        dist.broadcast(sent, 0)
        assert sent.float().tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match=r"float32.*float64"):
        dist.all_gather_into_tensor(
            torch.ones(dist.get_world_size(), dtype=torch.float64), torch.ones(1)
        )
    with pytest.raises(ValueError, match="elements"):
        dist.all_gather_into_tensor(torch.ones(1), torch.ones(1))
    dist.barrier()


BODIES = [
    rank_reductions,
    rank_moves,
    rank_uneven,
    rank_pairs,
    rank_asynchronous,
    rank_callbacks,
    rank_coalesced,
    rank_sparse,
    rank_told,
    rank_groups,
    rank_refusals,
]


def rank_bodies(names):
    for name in names:
        globals()[name]()


# One job for all: most of a job's time is the import of torch.
@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_calls(tmp_path, nranks):
    well(tmp_path, nranks, rank_bodies, [b.__name__ for b in BODIES])


@pytest.mark.long
def test_calls_under_torchrun(tmp_path):
    names = [b.__name__ for b in BODIES if b is not rank_reductions]
    well(tmp_path, 3, rank_bodies, names, launcher="torchrun")


def test_second_init(tmp_path):
    well(tmp_path, 2, rank_again, 10)


def test_spawned(tmp_path):
    """torch's tutorial: mp.spawn, rank= and world_size=; then a store, and each is another rank."""
    script = Path(__file__).with_name("spawned.py")
    status, text = run([sys.executable, str(script), str(tmp_path), "3"], 100, environment({}))
    assert status == 0 and "well" in text, text
