# SPDX-License-Identifier: Apache-2.0
"""Tensors of a CUDA device of every dtype, with gaps, without elements, and where ranks or tensors
differ: as tensors of the host, or refused with what to do. Over the double of CUDA's driver."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from conftest import BUILD
from cuda_double import CudaTensor, cuda, host, other_gpu

import halay.torch as hvd
from halay._tensors import TYPES
from halay.torch.optimizer import _Gradient

ENV = {"LD_LIBRARY_PATH": str(BUILD / "double"), "HALAY_DEADLINE": "10"}
SCALED = (torch.int32, torch.uint8, torch.float16, torch.bfloat16, torch.float64, torch.complex64)


def same(found, expected):
    assert found.dtype == expected.dtype and torch.equal(host(found), expected), (found, expected)


def rank_dtypes():
    """What the host's tensors give, bit by bit."""
    me, nranks = hvd.rank(), hvd.size()
    for dtype in TYPES:
        own = [(torch.arange(5) * (r + 1)).to(dtype) for r in range(nranks)]
        x, name = own[me], str(dtype)
        ops = [hvd.Sum, hvd.Average, hvd.Product, hvd.Min, hvd.Max]
        if dtype is torch.bool or dtype.is_complex:
            ops = ops[2:] if dtype is torch.bool else ops[:3]
        for op in ops:
            expected = hvd.allreduce(x, op=op, name=f"host.{name}.{op}")
            same(hvd.allreduce(cuda(x), op=op, name=f"{name}.{op}"), expected)
        same(hvd.allgather(cuda(x), name=name), torch.cat(own))
        same(hvd.broadcast(cuda(x), 1, name=name), own[1])
    for dtype in SCALED:
        x, name = torch.arange(6).to(dtype) + me, f"scaled.{dtype}"
        how = {"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 3.0}
        same(hvd.allreduce(cuda(x), name=name, **how), hvd.allreduce(x, name=f"host.{name}", **how))
        expected = hvd.reducescatter(x, name=f"host.{name}", **how)
        same(hvd.reducescatter(cuda(x), name=name, **how), expected)


def rank_gaps():
    me, nranks = hvd.rank(), hvd.size()
    base = torch.arange(24, dtype=torch.float32).view(4, 6)
    views = [
        lambda t: t.t(),
        lambda t: t[:, ::2],
        lambda t: t[1:3, 1:4],
        lambda t: t[::2],
        lambda t: t.unsqueeze(1).transpose(0, 2),
    ]
    for i, view in enumerate(views):
        whole = cuda(base * (me + 1))
        part = view(whole)
        same(hvd.allreduce(part, op=hvd.Sum, name=f"v{i}"), view(base) * 3)
        hvd.allreduce_(part, op=hvd.Sum, name=f"in{i}")
        expected = base * (me + 1)
        view(expected).copy_(view(base) * 3)
        same(whole, expected)  # what lies between has not changed
        hvd.broadcast_(part, 1, name=f"b{i}")
        same(hvd.allgather(part, name=f"g{i}"), torch.cat([view(base) * 3] * nranks))
    many = cuda(base).expand(2, 4, 6)
    same(hvd.allreduce(many, op=hvd.Sum, name="many"), (base * nranks).expand(2, 4, 6))
    for call in (hvd.allreduce_, lambda x: hvd.broadcast_(x, 0)):
        with pytest.raises(ValueError, match=r"share memory.*tensor\.clone"):
            call(many)
    z = torch.complex(torch.arange(4.0), torch.ones(4))
    same(hvd.allreduce(cuda(z).conj(), op=hvd.Sum, name="conj"), z.conj().resolve_conj() * nranks)
    same(hvd.allreduce(cuda(z).imag, op=hvd.Sum, name="imag"), z.imag * nranks)


def rank_empty():
    me, nranks = hvd.rank(), hvd.size()
    for shape in ((0,), (0, 3), (3, 0), ()):
        x, name = torch.ones(shape), str(shape)
        same(hvd.allreduce(cuda(x), op=hvd.Sum, name=name), x * nranks)
        same(hvd.allreduce_(cuda(x), name=name), x)
        same(hvd.broadcast_(cuda(x), 0, name=name), x)
        if shape:
            same(hvd.allgather(cuda(x), name=name), torch.cat([x] * nranks))
            same(hvd.alltoall(cuda(torch.cat([x] * nranks)), name=name), torch.cat([x] * nranks))
            part = hvd.reducescatter(cuda(x), op=hvd.Sum, name=name)
            same(part, (x * nranks).tensor_split(nranks)[me])
    out, rows = hvd.alltoall(cuda(torch.ones(nranks * me)), [me] * nranks, name="some")
    assert rows.tolist() == list(range(nranks))
    same(out, torch.ones(sum(range(nranks))))


def rank_groups():
    """Of both kinds of memory, and of process sets."""
    me, nranks = hvd.rank(), hvd.size()
    x = torch.ones(3)
    mixed = [cuda(x), x, cuda(x[:0]), cuda(x.half()), x.int()]
    for _ in range(4):
        found = hvd.grouped_allreduce(mixed, op=hvd.Sum, name="mixed")
        for one, given in zip(found, mixed):
            assert isinstance(one, CudaTensor) == isinstance(given, CudaTensor)
            plain = host(one) if isinstance(one, CudaTensor) else one
            assert plain.tolist() == [nranks] * len(given)
    alone = hvd.add_process_set([1])
    if me == 1:
        same(hvd.allreduce(cuda(x), op=hvd.Sum, process_set=alone), x)
        same(hvd.allreduce(cuda(x), op=hvd.Adasum, process_set=alone), x)
    else:
        with pytest.raises(ValueError, match="rank 0 is not in process set"):
            hvd.allreduce(cuda(x), process_set=alone)
    hvd.remove_process_set(alone)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "timeline")
        hvd.start_timeline(str(path))
        for _ in range(3):
            hvd.allreduce(cuda(x), name="timed")
        hvd.stop_timeline()
        text = (path if me == 0 else Path(f"{path}.rank{me}")).read_text()
        assert "allreduce.timed" in text and json.loads(text)
    params = {"w": cuda(torch.ones(3) * me), "b": cuda(torch.ones(4, 2) * me).t()}
    hvd.broadcast_parameters(params, 1)
    same(params["w"], torch.ones(3))
    same(params["b"], torch.ones(2, 4))


def rank_differ():
    """Where ranks differ in kind, shape, dtype or GPU: an error on all; the next call is good."""
    me, nranks = hvd.rank(), hvd.size()
    x = torch.ones(4)
    other = cuda(x) if me else x
    calls = [
        lambda: hvd.allgather(other, name="gather"),
        lambda: hvd.broadcast(other, 0, name="broadcast"),
        lambda: hvd.alltoall(other, name="alltoall"),
        lambda: hvd.allreduce(cuda(torch.ones(3 + me)), name="shape"),
        lambda: hvd.allreduce(cuda(x.double() if me else x), name="dtype"),
    ]
    for call in calls:
        with pytest.raises(hvd.HalayMismatch):
            call()
        same(hvd.allreduce(cuda(x), op=hvd.Sum, name="after"), x * nranks)
    found = hvd.allreduce(other, op=hvd.Adasum, name="adasum")  # it is reckoned on the host
    assert isinstance(found, CudaTensor) == (me > 0)
    same(hvd.allreduce(cuda(x), op=hvd.Sum, name="after"), x * nranks)


def rank_wrong_memory():
    """Nothing of a group stays out that was refused in its midst."""
    x, nranks = torch.ones(4), hvd.size()
    freed = cuda(x)
    freed.free()
    for wrong, kind, words in (
        (freed, hvd.HalayError, "'grouped_allreduce.wrong.1'.*it is not there .*was it freed"),
        (other_gpu(x), ValueError, r"on device cuda:1: earlier tensors were on cuda:0.*set_device"),
    ):
        with pytest.raises(kind, match=words):
            hvd.grouped_allreduce([cuda(x), wrong, cuda(x)], name="wrong")
        found = hvd.grouped_allreduce([cuda(x)] * 3, op=hvd.Sum, name="wrong")
        assert [host(one).tolist() for one in found] == [[nranks] * 4] * 3
    with pytest.raises(ValueError, match="on cuda:0"):
        hvd.allgather(other_gpu(x))


def rank_joined():
    if hvd.rank() == 0:
        for i in range(3):
            same(hvd.allreduce(cuda(torch.ones(4)), op=hvd.Sum, name=f"j{i}"), torch.ones(4))
        with pytest.raises(hvd.HalayError, match="join"):
            hvd.allgather(cuda(torch.ones(4)), name="gather")
    else:
        cuda(torch.ones(1))
    hvd.join()
    same(hvd.allreduce(cuda(torch.ones(4)), op=hvd.Sum, name="after"), torch.ones(4) * hvd.size())


def rank_all():
    for body in (rank_dtypes, rank_gaps, rank_empty, rank_groups, rank_differ, rank_wrong_memory):
        body()
    rank_joined()


def test_kinds(job):
    job(2, rank_all, env=ENV)


def test_no_gradient_is_where_the_parameter_is():
    """Of a parameter that had sparse ones. meta: a device that is not the host."""
    gradient = _Gradient(torch.empty(5, 3, 2, device="meta", dtype=torch.float16), "x", None, 1)
    gradient.sparse_dims = (1, 2)
    found = gradient._nothing()
    assert (found.device.type, found.dtype, found.shape) == ("meta", torch.float16, (5, 3, 2))
    assert found.is_sparse and (found.sparse_dim(), found.dense_dim()) == (1, 2)
