# SPDX-License-Identifier: Apache-2.0
"""Tensors of a CUDA device, over the double of CUDA's driver: cuda_double.py says what that is."""

import datetime

import numpy
import pytest
import torch
from conftest import BUILD
from cuda_double import DEVICE, come, cuda, halted, host, legacy, other_stream, used, waits

import halay.torch as hvd
from halay.errors import HalayError, HalayMismatch

pytestmark = pytest.mark.sampled

ENV = {"LD_LIBRARY_PATH": str(BUILD / "double")}


def rank_collectives():
    me, nranks = hvd.rank(), hvd.size()
    base = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    total = nranks * (nranks + 1) / 2
    for _ in range(6):  # rounds, and replays
        x = cuda(base * (me + 1))
        assert torch.equal(host(hvd.allreduce(x, op=hvd.Sum, name="sum")), base * total)
        assert torch.equal(host(hvd.allreduce_(x, name="mean")), base * total * (1 / nranks))
        half = hvd.allreduce(
            cuda(base * (me + 1)),
            name="fp16",
            op=hvd.Sum,
            compression=hvd.Compression.fp16,
        )
        assert half.dtype == torch.float32 and torch.equal(host(half), base * total)
        many = hvd.grouped_allreduce([cuda(base + i) for i in range(5)], name="many", op=hvd.Sum)
        assert all(torch.equal(host(t), (base + i) * nranks) for i, t in enumerate(many))
        counts = hvd.allreduce(cuda(torch.tensor([me, 7])), name="ints", op=hvd.Sum)
        assert host(counts).tolist() == [nranks * (nranks - 1) // 2, 7 * nranks]
        rows = hvd.allgather(cuda(base[:me]), name="rows")  # rank 0 has none
        assert torch.equal(host(rows), torch.cat([base[:r] for r in range(nranks)]))
        root = hvd.broadcast(cuda(base + me), root_rank=nranks - 1, name="root")
        assert torch.equal(host(root), base + nranks - 1)
        own = hvd.reducescatter(cuda(base.repeat(nranks, 1)), name="own", op=hvd.Sum)
        assert torch.equal(host(own), base * nranks)
        sent = torch.full((nranks, 2), float(me))
        back, splits = hvd.alltoall(cuda(sent), torch.ones(nranks, dtype=torch.int32), name="all")
        assert host(back)[:, 0].tolist() == list(range(nranks)) and splits.tolist() == [1] * nranks
        ada = hvd.allreduce(cuda(base), name="adasum", op=hvd.Adasum)
        assert torch.allclose(host(ada), base)
    assert not waits, "the processor has waited for the stream"
    return True


def rank_late():
    """Values that the current stream makes after the submission; nothing blocks meanwhile."""
    base = torch.arange(12, dtype=torch.float32)
    x = cuda(torch.zeros(12))
    for step in range(8):
        with halted():
            come(x, base + step)
            handle = hvd.allreduce_async_(x, name="late", op=hvd.Sum)
            assert not hvd.poll(handle) and not hvd.poll(handle)
        assert torch.equal(host(hvd.synchronize(handle)), (base + step) * hvd.size())
    assert not waits, "the processor has waited for the stream"


def rank_kinds_differ():
    x = torch.ones(4)
    with pytest.raises(HalayMismatch, match=r"rank 1: .*host's memory|GPU's memory"):
        hvd.allreduce(x if hvd.rank() == 1 else cuda(x), name="x")
    assert torch.equal(host(hvd.allreduce(cuda(x), name="x")), x)


def rank_float8():
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = cuda(torch.zeros(4, dtype=dtype))
        assert x.is_cuda and x.dtype == dtype
        for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with pytest.raises(TypeError, match=rf"{dtype}, on device cuda.*not supported"):
                call(x, name="x")
        with pytest.raises(TypeError, match=f"{dtype}"):
            hvd.grouped_allreduce([cuda(torch.ones(2)), x], name="group")
    assert host(hvd.allreduce(cuda(torch.ones(2)), name="afterwards")).tolist() == [1, 1]


def rank_batch_norm():
    """The forward pass; torch without CUDA has no backward pass on such tensors."""
    joined = torch.randn(4 * hvd.size(), 3, generator=torch.Generator().manual_seed(1))
    ours, plain = hvd.SyncBatchNorm(3), torch.nn.BatchNorm1d(3)
    for tensors in (ours._parameters, ours._buffers):
        for name, value in tensors.items():
            if value is not None and name != "num_batches_tracked":
                tensors[name] = cuda(value.detach())
    mine = joined.chunk(hvd.size())[hvd.rank()]
    with torch.no_grad():
        found, expected = ours(cuda(mine)), plain(joined).chunk(hvd.size())[hvd.rank()]
    assert torch.allclose(host(found), expected, atol=1e-5)
    assert torch.allclose(host(ours.running_mean), plain.running_mean, atol=1e-6)


def streams_change(group, base, step):
    """Calls behind several streams, under way at once, by themselves and in a bundle. Their values
    come late."""
    from torch._C import _distributed_c10d as c10d

    opts = c10d.AllreduceOptions()
    opts.asyncOp = True
    alone, bundle = ([cuda(torch.zeros(6)) for _ in range(2)] for _ in range(2))
    with halted():
        come(alone[0], base + step)
        works = [group.allreduce([alone[0]], opts)]
        with other_stream():
            come(alone[1], base + step + 1)
            works.append(group.allreduce([alone[1]], opts))
        group._start_coalescing(DEVICE)
        come(bundle[0], base + step + 2)
        group.allreduce([bundle[0]], opts)
        with other_stream():
            come(bundle[1], base + step + 3)
            group.allreduce([bundle[1]], opts)
        works.append(group._end_coalescing(DEVICE))
        assert not any(work.is_completed() for work in works)
    assert all(work.wait() for work in works)
    for i, tensor in enumerate([*alone, *bundle]):
        assert torch.equal(host(tensor), (base + step + i) * group.size()), (step, i)


def rank_distributed():
    import torch.distributed as dist

    from halay.distributed import _tensors, _work
    from halay.distributed._callbacks import HalayFuture

    made_of = []

    def make(job, devices):
        made_of.append(devices)
        return HalayFuture(job, [])  # torch without CUDA makes none for its devices

    def finish(target):
        """As Target.finish(): torch without CUDA refuses copy_()."""
        at = 0
        for tensor in () if target.direct else target.tensors:
            tensor.inner.copy_(target.buffer.inner[at : at + tensor.numel()].view(tensor.shape))
            at += tensor.numel()

    _work.make_future = make
    _tensors.Target.finish = finish
    hvd.barrier()
    hvd.shutdown()
    dist.init_process_group("halay", init_method="halay://", timeout=datetime.timedelta(seconds=30))
    group = dist.group.WORLD
    assert {d.type for d in group._device_types} == {"cpu", "cuda"}
    me, nranks = group.rank(), group.size()
    base = torch.arange(6, dtype=torch.float32)
    x = cuda(base * (me + 1))
    before = len(waits)
    work = group.allreduce([x])
    future = work.get_future()
    assert work.wait() and future.wait()[0] is x
    assert made_of == [{DEVICE}] and len(waits) == before
    assert torch.equal(host(x), base * nranks * (nranks + 1) / 2)
    outs = [cuda(torch.zeros(6)) for _ in range(nranks)]  # not one piece: copied at the end
    assert not used
    group.allgather([outs], [cuda(base + me)]).wait()
    assert all(torch.equal(host(o), base + r) for r, o in enumerate(outs))
    assert {id(o) for o in outs} < {id(tensor) for tensor, _ in used}, "the allocator is not told"
    assert len({id(stream) for _, stream in used}) == 1
    y = cuda(base + me)
    group.broadcast([y]).wait()
    assert torch.equal(host(y), base)
    for step in range(3):
        streams_change(group, base, step)
    assert len(waits) == before, "the processor has waited for a stream"
    dist.destroy_process_group()


@pytest.mark.parametrize("nranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_collectives(job, nranks):
    assert all(job(nranks, rank_collectives, env=ENV))


def test_kinds_differ_norm_and_groups(job):
    job(2, rank_all, env=ENV)


def rank_all():
    rank_late()
    with legacy():
        rank_late()
    rank_kinds_differ()
    rank_float8()
    rank_batch_norm()
    rank_distributed()


def test_arrays_of_others_are_refused_with_the_way():
    class Array:
        """As of a library that knows no DLPack."""

        __cuda_array_interface__ = {"version": 3}  # noqa: RUF012

    hvd.init()
    try:
        for array, way in (
            (numpy.ones(3, dtype=numpy.float32), r"not ndarray; torch\.from_dlpack\(\)"),
            (Array(), r"not Array; torch\.as_tensor\(\.\.\., device=\"cuda\"\)"),
            ([1.0], "not list$"),
        ):
            with pytest.raises(TypeError, match=way):
                hvd.allreduce(array)
        seen = torch.from_dlpack(numpy.ones(3, dtype=numpy.float32))
        assert hvd.allreduce(seen).tolist() == [1, 1, 1]
    finally:
        hvd.shutdown()


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="on device meta has no memory; make it on"):
        hvd.init()
        try:
            hvd.allreduce(torch.empty(3, device="meta"))
        finally:
            hvd.shutdown()
    assert issubclass(HalayMismatch, HalayError)
