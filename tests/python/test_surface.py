# SPDX-License-Identifier: Apache-2.0
"""Groups, sparse tensors, alltoall, reducescatter, autograd and process sets, on several ranks."""

import pytest
import torch
from conftest import ODD_RANKS, RANKS

import halay.torch as hvd


def same(found, expected):
    assert found.dtype == expected.dtype and torch.equal(found, expected), (found, expected)


def of_rank(rank, *shape, dtype=torch.float32):
    """Small integers, different on each rank: sums are exact."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(-3, 4, shape, generator=generator).to(dtype)


def rank_groups():
    me, nranks = hvd.rank(), hvd.size()
    shapes = [(3,), (2, 5), (0,), ()]
    total = [sum(of_rank(r, *shape) for r in range(nranks)) for shape in shapes]
    mine = [of_rank(me, *shape) for shape in shapes]
    for found in (
        hvd.grouped_allreduce(mine, op=hvd.Sum),
        hvd.synchronize(hvd.grouped_allreduce_async(mine, op=hvd.Sum, name="g")),
        hvd.grouped_allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16),
    ):
        for a, b in zip(found, total):
            same(a, b)
    in_place = [t.clone() for t in mine]
    found = hvd.grouped_allreduce_(in_place, average=None, op=hvd.Sum)
    assert all(a is b for a, b in zip(found, in_place))
    hvd.synchronize(hvd.grouped_allreduce_async_(in_place, name="h"))  # the average of equals
    for a, b in zip(in_place, total):
        assert torch.allclose(a, b)
    rows = [torch.full((r + 1, 2), float(r)) for r in range(nranks)]
    for found in (
        hvd.grouped_allgather([rows[me], mine[1]]),
        hvd.synchronize(hvd.grouped_allgather_async([rows[me], mine[1]], name="a")),
    ):
        same(found[0], torch.cat(rows))
        same(found[1], torch.cat([of_rank(r, 2, 5) for r in range(nranks)]))
    # One that is refused: none of the group is submitted, so its names are free.
    with pytest.raises(TypeError, match="not list"):
        hvd.grouped_allreduce([torch.ones(1), [1.0]], name="refused")
    out = hvd.grouped_allreduce_async([torch.ones(1)] * 3, name="refused")
    with pytest.raises(hvd.DuplicateName, match=r"grouped_allreduce\.refused\.0"):
        hvd.grouped_allreduce([torch.ones(1)], name="refused")
    hvd.synchronize(out)
    assert hvd.grouped_allreduce([torch.ones(1)], name="refused", op=hvd.Sum)[0].item() == nranks


def rank_sparse():
    me, nranks = hvd.rank(), hvd.size()
    dense = [of_rank(r, 6, 3) * (of_rank(r, 6, 1) > 0) for r in range(nranks)]
    for sparse_dim in (1, 2):
        handle = hvd.sparse_allreduce_async(dense[me].to_sparse(sparse_dim), "s", hvd.Sum)
        found = handle()
        assert found.is_sparse
        same(found.to_dense(), sum(dense))
    mean = hvd.sparse_allreduce_async(dense[me].to_sparse(1), None, hvd.Average)()
    assert torch.allclose(mean.to_dense(), sum(dense) / nranks)
    # Nothing at all on all ranks but one.
    own = dense[0] if me == 0 else torch.zeros(6, 3)
    same(hvd.sparse_allreduce_async(own.to_sparse(1), "one", hvd.Sum)().to_dense(), dense[0])
    with pytest.raises(ValueError, match="Average or Sum"):
        hvd.sparse_allreduce_async(own.to_sparse(), "x", hvd.Max)
    with pytest.raises(TypeError, match="sparse_coo"):
        hvd.sparse_allreduce_async(own, "x", hvd.Sum)


def rank_alltoall():
    me, nranks = hvd.rank(), hvd.size()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
        own = of_rank(me, 2 * nranks, 3).abs().to(dtype)
        parts = [
            of_rank(r, 2 * nranks, 3).abs().to(dtype)[2 * me : 2 * me + 2] for r in range(nranks)
        ]
        same(hvd.alltoall(own), torch.cat(parts))
    # From rank s to rank d go (s + 2 d) % 3 rows; three rows stay behind.
    counts = [[(s + 2 * d) % 3 for d in range(nranks)] for s in range(nranks)]
    whole = [of_rank(s, sum(counts[s]) + 3, 2) for s in range(nranks)]
    expected = torch.cat([whole[s][sum(counts[s][:me]) :][: counts[s][me]] for s in range(nranks)])
    received = torch.tensor([counts[s][me] for s in range(nranks)], dtype=torch.int32)
    splits = torch.tensor(counts[me], dtype=torch.int32)
    for given in (splits, counts[me]):
        found, rows = hvd.alltoall(whole[me], given, name="a")
        same(found, expected)
        same(rows, received)
    # In another order on each rank.
    names = [f"n{(i + me) % 4}" for i in range(4)]
    handles = {n: hvd.alltoall_async(whole[me] + int(n[1]), splits, name=n) for n in names}
    for name in reversed(names):
        found, rows = hvd.synchronize(handles[name])
        same(found, expected + int(name[1]))
    for wrong, words in (
        ((torch.ones(nranks + 1),), "evenly"),
        ((torch.ones(nranks - 1), [1] * nranks), "rows in all"),
        ((torch.ones(nranks), torch.ones(nranks)), "integers"),
        ((torch.ones(nranks), [1] * (nranks + 1)), "for each"),
    ):
        with pytest.raises(ValueError, match=words):
            hvd.alltoall(*wrong)
    with pytest.raises(hvd.HalayMismatch):
        hvd.alltoall(torch.ones(nranks, me + 1))


def rank_reducescatter():
    me, nranks = hvd.rank(), hvd.size()
    for nrows in (2 * nranks, 2 * nranks + 1, 1, 0):
        total = sum(of_rank(r, nrows, 3) for r in range(nranks))
        # torch deals the rows of tensor_split out in the same way: the first ones get more.
        same(hvd.reducescatter(of_rank(me, nrows, 3), op=hvd.Sum), total.tensor_split(nranks)[me])
    own = of_rank(me, 5, 2)
    total = sum(of_rank(r, 5, 2) for r in range(nranks)).tensor_split(nranks)[me]
    assert torch.allclose(hvd.reducescatter(own), total / nranks)
    scaled = hvd.reducescatter(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    same(scaled, total * 2)
    same(hvd.synchronize(hvd.reducescatter_async(own, name="r", op=hvd.Sum)), total)
    same(hvd.grouped_reducescatter([own, own], op=hvd.Sum)[1], total)
    handle = hvd.grouped_reducescatter_async([own, own], name="g", op=hvd.Sum)
    same(hvd.synchronize(handle)[0], total)
    with pytest.raises(ValueError, match="Average or Sum"):
        hvd.reducescatter(own, op=hvd.Max)
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.reducescatter(own, op=hvd.Adasum)
    with pytest.raises(ValueError, match="scalar"):
        hvd.reducescatter(torch.tensor(1.0))


def rank_collectives():
    rank_groups()
    rank_sparse()
    rank_alltoall()
    rank_reducescatter()


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_collectives(job, nranks):
    job(nranks, rank_collectives)


def gradient_of(call, own, upstream):
    own = own.clone().requires_grad_()
    out = call(own)
    (out * upstream(out)).sum().backward()
    return own.grad


def rank_autograd():
    """Gradients as Horovod defines them, with an upstream gradient that differs between ranks."""
    me, nranks = hvd.rank(), hvd.size()
    everyone = range(nranks)
    own = of_rank(me, 2 * nranks, 3)

    def up(out, rank=me):
        return of_rank(10 + rank, *out.shape)

    total = sum(of_rank(10 + r, 2 * nranks, 3) for r in everyone)
    same(gradient_of(lambda t: hvd.allreduce(t, op=hvd.Sum), own, up), total)
    scaled = gradient_of(lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=2.0), own, up)
    same(scaled, total * 2)
    assert torch.allclose(gradient_of(hvd.allreduce, own, up), total / nranks)
    half = gradient_of(
        lambda t: hvd.allreduce(t, op=hvd.Sum, compression=hvd.Compression.fp16), own, up
    )
    same(half, total)
    same(gradient_of(lambda t: hvd.grouped_allreduce([t, t], op=hvd.Sum)[1], own, up), total)

    mine = of_rank(me, me + 1, 2)
    gathered = sum(of_rank(10 + r, sum(range(nranks + 1)), 2) for r in everyone) / nranks
    first = sum(range(me + 1))
    expected = gathered[first : first + me + 1]
    assert torch.allclose(gradient_of(hvd.allgather, mine, up), expected)
    assert torch.allclose(gradient_of(lambda t: hvd.grouped_allgather([t])[0], mine, up), expected)

    for root in everyone:
        expected = total / nranks if me == root else torch.zeros_like(own)
        found = gradient_of(lambda t, root=root: hvd.broadcast(t, root), own, up)
        assert torch.allclose(found, expected)

    # An alltoall back: what rank d got from here has rank d's upstream gradient.
    splits = [1] * nranks
    parts = [of_rank(10 + d, nranks, 3)[me : me + 1] for d in everyone]
    expected = torch.cat([*parts, torch.zeros(nranks, 3)])
    same(gradient_of(lambda t: hvd.alltoall(t, splits)[0], own, up), expected)

    scattered = torch.cat([of_rank(10 + r, 2, 3) for r in everyone])
    same(gradient_of(hvd.reducescatter, own, up), scattered)
    found = gradient_of(lambda t: hvd.grouped_reducescatter([t], op=hvd.Sum)[0], own, up)
    same(found, scattered * nranks)

    # Twice: the gradient of a gradient of sum((sum over ranks)^2) is a constant.
    weight = own.clone().requires_grad_()
    reduced = hvd.allreduce(weight, op=hvd.Sum)
    (once,) = torch.autograd.grad((reduced**2).sum(), weight, create_graph=True)
    once.sum().backward()
    same(weight.grad, torch.full_like(own, 2.0 * nranks * nranks))


@pytest.mark.parametrize("nranks", RANKS)
def test_autograd(job, nranks):
    job(nranks, rank_autograd)


def rank_process_sets():
    me, nranks = hvd.rank(), hvd.size()
    assert hvd.global_process_set.ranks == list(range(nranks))
    assert hvd.is_homogeneous()
    everyone_but_0 = hvd.add_process_set(range(1, nranks))
    only_0 = hvd.ProcessSet([0])
    assert only_0.process_set_id is None and only_0.size() is None
    assert hvd.add_process_set(only_0) is only_0
    assert (everyone_but_0.process_set_id, only_0.process_set_id) == (1, 2)
    mine, other = (only_0, everyone_but_0) if me == 0 else (everyone_but_0, only_0)
    assert mine.included() and not other.included() and other.rank() is None
    assert mine.rank() == (0 if me == 0 else me - 1)
    assert mine.size() == (1 if me == 0 else nranks - 1)
    members = [0] if me == 0 else list(range(1, nranks))
    # The same names in both sets and in the job, all out at a time.
    handles = [
        hvd.allreduce_async(torch.tensor([float(me)]), name="x", op=hvd.Sum, process_set=chosen)
        for chosen in (mine, hvd.global_process_set)
    ]
    assert hvd.synchronize(handles[1]).item() == sum(range(nranks))
    assert hvd.synchronize(handles[0]).item() == sum(members)
    for _ in range(20):
        mean = hvd.allreduce(torch.tensor([float(me)]), name="m", process_set=mine)
        assert mean.item() == pytest.approx(sum(members) / len(members))
    assert hvd.allgather(torch.tensor([me]), process_set=mine).tolist() == members
    for root in members:  # a rank of the job
        assert hvd.broadcast(torch.tensor([me]), root, process_set=mine).item() == root
        assert hvd.broadcast_object(me, root, process_set=mine) == root
    assert hvd.allgather_object(me, process_set=mine) == members
    own = torch.arange(len(members)) + 10 * me
    dealt = hvd.alltoall(own, process_set=mine)
    assert dealt.tolist() == [10 * r + members.index(me) for r in members]
    (row,) = hvd.reducescatter(own, op=hvd.Sum, process_set=mine).tolist()
    assert row == sum(10 * r + members.index(me) for r in members)
    hvd.barrier(process_set=mine)
    with pytest.raises(ValueError, match=f"rank {me} is not in process set"):
        hvd.allreduce(torch.ones(1), process_set=other)
    outsider = next(r for r in range(nranks) if r not in members)
    with pytest.raises(ValueError, match="is not one of"):
        hvd.broadcast(torch.ones(1), outsider, process_set=mine)
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set([0])
    with pytest.raises(ValueError, match="not some of"):
        hvd.add_process_set([nranks])
    # Training in two sets at a time.
    weight = torch.zeros(3, requires_grad=True)
    inner = torch.optim.SGD([weight], lr=1.0)
    optimizer = hvd.DistributedOptimizer(inner, [("w", weight)], process_set=mine)
    for _ in range(3):
        optimizer.zero_grad()
        (weight * (me + 1)).sum().backward()
        optimizer.step()
    mean = sum(r + 1 for r in members) / len(members)
    assert torch.allclose(weight.detach(), torch.full((3,), -3 * mean))
    number = everyone_but_0.process_set_id
    assert hvd.remove_process_set(everyone_but_0)
    assert not hvd.remove_process_set(everyone_but_0)
    assert not hvd.remove_process_set(hvd.global_process_set)
    with pytest.raises(ValueError, match="not in use"):
        hvd.allreduce(torch.ones(1), process_set=everyone_but_0)
    again = hvd.add_process_set(everyone_but_0)
    assert again.process_set_id == number  # the first free one, as Horovod's
    hvd.barrier()
    hvd.shutdown()
    assert again.process_set_id is None
    hvd.init(process_sets=[again, hvd.ProcessSet(range(nranks))])
    assert again.process_set_id == 1
    if me > 0:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=again).item() == nranks - 1


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_process_sets(job, nranks):
    job(nranks, rank_process_sets)
