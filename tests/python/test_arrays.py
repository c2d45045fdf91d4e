# SPDX-License-Identifier: Apache-2.0
"""halay.arrays: NumPy's arrays and DLPack's of the host; arrays of a GPU, by DLPack and by
__cuda_array_interface__, over the double of CUDA's driver."""

import array
import ctypes
import gc
import sys
import time
import weakref

import numpy
import pytest
import torch
from cffi import FFI
from conftest import BUILD, HERE, ODD_RANKS, environment, halayrun, run
from cuda_double import come, cuda, halted, host, legacy, stream_handle

import halay.arrays as ha
from halay._core import lib
from halay.errors import HalayError, HalayMismatch

ENV = {"LD_LIBRARY_PATH": str(BUILD / "double"), "HALAY_DEADLINE": "12"}
TYPES = {torch.float32: "<f4", torch.float16: "<f2", torch.int64: "<i8", torch.bool: "|b1"}
DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


class OnlyDlpack:
    """An array without a buffer; of a library that is older than DLPack 1.0, if old."""

    def __init__(self, inner, old=False):
        self.inner = inner
        if old:
            self.__class__ = OldDlpack

    def __dlpack_device__(self):
        return self.inner.__dlpack_device__()

    def __dlpack__(self, stream=None, max_version=None):
        return self.inner.__dlpack__(stream=stream, max_version=max_version)


class OldDlpack(OnlyDlpack):
    def __dlpack__(self, stream=None):
        return self.inner.__dlpack__(stream=stream)


class Array:
    """Of a GPU. changes: of its interface; None: the entry is not there."""

    def __init__(self, tensor, **changes):
        self.tensor = tensor
        interface = {
            "shape": tuple(tensor.shape),
            "typestr": TYPES.get(tensor.dtype, "|V2"),
            "data": (tensor.data_ptr() if tensor.numel() else 0, False),
            "version": 3,
            "strides": None,
            "stream": None,
            **changes,
        }
        self.__cuda_array_interface__ = {k: v for k, v in interface.items() if v != "none"}


_ffi = FFI()
_ffi.cdef("""
typedef struct {
    void *data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
    int64_t *shape, *strides; uint64_t byte_offset; void *manager_ctx, *deleter;
} Managed;
""")
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class DlpackOfGpu:
    """As of CuPy: asked for a capsule, it has the consumer's stream wait for its own."""

    def __init__(self, tensor, device=2, **changes):
        self.tensor, self.asked, self.device = tensor, [], device
        codes = {torch.float32: (2, 32), torch.bfloat16: (4, 16)}
        self.shape = _ffi.new("int64_t[]", list(tensor.shape))
        self.managed = _ffi.new("Managed *")
        code, bits = codes[tensor.dtype]
        said = {"device_type": device, "ndim": tensor.dim(), "code": code, "bits": bits, "lanes": 1}
        for name, value in {**said, **changes}.items():
            setattr(self.managed, name, value)
        self.managed.data = _ffi.cast("void *", tensor.data_ptr() - self.managed.byte_offset)
        self.managed.shape = self.shape

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return _new(int(_ffi.cast("uintptr_t", self.managed)), b"dltensor", None)


def rank_host():
    me, nranks = ha.rank(), ha.size()
    total = nranks * (nranks + 1) // 2
    for code in DTYPES:
        x = (numpy.arange(6).reshape(2, 3) * (me + 1)).astype(code)
        expected = (numpy.arange(6).reshape(2, 3) * total).astype(code)
        out = numpy.empty_like(x)
        for given in (x, OnlyDlpack(x), OnlyDlpack(x, old=True)):
            out[...] = 0
            assert ha.allreduce(given, out) is out and numpy.array_equal(out, expected), code
        assert ha.allreduce(OnlyDlpack(x)) is not x and numpy.array_equal(x, expected), code
    flags = numpy.array([me == 0, True])
    assert ha.allreduce(flags.copy(), op="land").tolist() == [nranks == 1, True]
    assert ha.allreduce(OnlyDlpack(flags), op="lor") and flags.tolist() == [True, True]
    assert ha.allreduce(torch.tensor([me, 1.0], dtype=torch.bfloat16), op="max").tolist() == [
        nranks - 1,
        1,
    ]
    assert ha.allreduce(array.array("d", [me, 2.0]), op="average")[1] == 2
    assert ha.allreduce(numpy.zeros((0, 3))).shape == (0, 3)
    assert ha.allreduce(numpy.array(float(me)), op="max") == nranks - 1
    # What cannot be written to is input.
    own = numpy.full(2, me, dtype=numpy.int64)
    own.flags.writeable = False
    table = numpy.empty((nranks, 2), dtype=numpy.int64)
    for given in (own, OnlyDlpack(own)):
        assert ha.allgather(given, table)[:, 1].tolist() == list(range(nranks))
    assert ha.allgather(bytes([me]), bytearray(nranks)) == bytes(range(nranks))
    part = numpy.empty(3)
    whole = numpy.repeat(numpy.arange(float(nranks)), 3)
    assert ha.reduce_scatter(whole, part, op="max").tolist() == [me] * 3
    sent = numpy.arange(nranks) + 10 * me
    assert ha.alltoall(sent, numpy.empty_like(sent)).tolist() == [
        10 * r + me for r in range(nranks)
    ]
    assert ha.alltoall(sent, sent) is sent and sent[0] == me
    assert ha.broadcast(numpy.array([me]), root=nranks - 1)[0] == nranks - 1
    ha.barrier()


def rank_more():
    """Rooted calls, scans, uneven parts, and two ranks."""
    me, n = ha.rank(), ha.size()
    x = numpy.arange(4.0) + me
    for root in range(n):
        out = numpy.full(4, -1.0)
        found = ha.reduce(x, out, root=root)
        assert (found is out) == (me == root) and (me == root or found is None)
        assert out.tolist() == (
            [n * i + n * (n - 1) / 2 for i in range(4)] if me == root else [-1.0] * 4
        )
        mine = x.copy()
        ha.reduce(mine, op="max", root=root)
        assert mine.tolist() == (x + (n - 1 - me if me == root else 0)).tolist()
        rows = ha.gather(x, numpy.empty((n, 4)) if me == root else None, root)
        assert rows is None if me != root else rows[:, 0].tolist() == list(range(n))
        part = ha.scatter(numpy.arange(2 * n) if me == root else None, numpy.zeros(2, "i8"), root)
        assert part.tolist() == [2 * me, 2 * me + 1]
    assert ha.scan(x, numpy.empty(4))[0] == me * (me + 1) / 2
    before = ha.exscan(numpy.array([me + 1]), numpy.array([-1]))
    assert before[0] == (me * (me + 1) // 2 if me else -1)
    counts = [3 * r % 4 for r in range(n)]
    every = numpy.concatenate([numpy.full(c, r) for r, c in enumerate(counts)])
    mine = numpy.full(counts[me], me)
    assert numpy.array_equal(ha.allgather(mine, numpy.empty_like(every), counts), every)
    got = ha.gather(mine, numpy.empty_like(every) if me == 1 else None, 1, counts)
    assert me != 1 or numpy.array_equal(got, every)
    assert ha.scatter(every, numpy.empty_like(mine), 1, counts).tolist() == mine.tolist()
    part = ha.reduce_scatter(every, numpy.empty_like(mine), counts=counts)
    assert part.tolist() == (mine * n).tolist()
    sent, received = [r + me for r in range(n)], [me + r for r in range(n)]
    data = numpy.concatenate([numpy.full(c, 10 * me + r) for r, c in enumerate(sent)])
    into = numpy.empty(sum(received), dtype=data.dtype)
    ha.alltoall(data, into, sent=sent, received=received)
    assert into.tolist() == [10 * r + me for r, c in enumerate(received) for _ in range(c)]
    if me < 2:
        one, other = numpy.arange(5) + me, numpy.empty(5, dtype=int)
        for first in (0, 1):
            if me == first:
                ha.send(one, 1 - me)
            else:
                assert ha.recv(other, 1 - me)[0] == 1 - me
        with pytest.raises(ValueError, match="not another rank"):
            ha.send(one, me)
    for wrong, words in (([1] * (n + 1), "not . numbers"), ([2] * n, "has 3 elements, not 2")):
        with pytest.raises((ValueError, HalayError), match=words):
            ha.allgather(numpy.zeros(3), numpy.zeros(3 * n), wrong)
    with pytest.raises(ValueError, match="both, or neither"):
        ha.alltoall(data, into, sent=sent)


def rank_refused():
    """On one rank: all ranks have an error, which says why, and the next call is good."""
    me = ha.rank()
    good, out = numpy.ones(4, dtype=numpy.float32), numpy.ones(8, dtype=numpy.float32)
    matrix = numpy.ones((4, 4), dtype=numpy.float32)
    frozen = numpy.ones(4, dtype=numpy.float32)
    frozen.flags.writeable = False
    grad = torch.ones(4, requires_grad=True)
    cases = [
        (matrix[:, 0], "make a contiguous copy"),
        (OnlyDlpack(matrix.T), "make a contiguous copy"),
        (OnlyDlpack(matrix[:, :3]), "make a contiguous copy"),
        (matrix[::2], "make a contiguous copy"),
        (good.astype(">f4"), "not supported; convert"),
        (good.astype(numpy.longdouble), "not supported; convert"),
        (numpy.array([None] * 4), "not supported; convert"),
        (numpy.zeros(4, "M8[s]"), r"datetime64\[s\] are not supported; convert"),
        (frozen, "may not be written to"),
        (numpy.ma.array(good, mask=[0, 1, 0, 0]), "MaskedArray.*is masked; fill"),
        (numpy.ma.array(good), "MaskedArray.*is masked; fill"),
        (OnlyDlpack(frozen), "may not be written to"),
        (grad, "(detach|requires? grad)"),
        (torch.ones(4, device="meta"), "."),
        ([1.0] * 4, r"no buffer, no __dlpack__ and no __cuda_array_interface__"),
        (None, "no buffer"),
    ]
    for wrong, words in cases:
        expected = (TypeError, ValueError, BufferError) if me == 1 else HalayError
        with pytest.raises(expected, match=words if me == 1 else f"rank 1.*{words}"):
            ha.allreduce(wrong if me == 1 else good)
        assert ha.allreduce(good.copy()).tolist() == [ha.size()] * 4
    calls = [
        (lambda: ha.allgather(good, good), "needs an out of 8, not 4"),
        (lambda: ha.reduce_scatter(out, out), "needs an out of 4, not 8"),
        (lambda: ha.alltoall(numpy.ones(3), numpy.ones(3)), "dealt out evenly to 2"),
        (lambda: ha.allreduce(good, numpy.ones(4)), "float32, out of float64"),
        (lambda: ha.allreduce(good, op="mean"), "'mean' is no reduction; there are sum"),
        (lambda: ha.allreduce(good, op="band"), "'band' does not take float32"),
        (lambda: ha.allgather(good, None), "out .NoneType.: it has no buffer"),
        (lambda: ha.allreduce(good, op=["sum"]), "is no reduction; there are sum"),
        (lambda: ha.broadcast(good, root=0.5), "broadcast: root must be an integer, not 0.5"),
        (lambda: ha.gather(good, out, root=None), "gather: root must be an integer, not None"),
        (lambda: ha.allgather(good, out, [4.0, 4]), "each of counts must be an integer"),
        (lambda: ha.send(good, 0.5), "send: the other rank must be an integer"),
    ]
    for call, words in calls:
        with pytest.raises((TypeError, ValueError), match=words):
            call()
    assert ha.allreduce(good.copy()).tolist() == [ha.size()] * 4
    with pytest.raises(HalayMismatch):
        ha.allreduce(numpy.ones(4 + me))
    for call in (ha.allreduce, ha.scan, ha.alltoall):
        with pytest.raises(ValueError, match=f"{call.__name__}: the array and out overlap"):
            call(out[:4], out[2:6])
    with pytest.raises(ValueError, match="overlap"):
        ha.allgather(out[:4], out)
    assert ha.allreduce(out[:4], out[4:]).tolist() == [ha.size()] * 4
    with pytest.raises(HalayError, match="root"):
        ha.broadcast(good, root=7)
    with pytest.raises(HalayError if me == 0 else TypeError, match="root must be an integer"):
        ha.broadcast(good, root=0 if me == 0 else "zero")


def rank_too_large():
    """Numbers that are more than C's int or size_t, on one rank."""
    me, good, out = ha.rank(), numpy.ones(4, "f4"), numpy.ones(8, "f4")
    for call in (
        lambda root: ha.broadcast(good, root=root),
        lambda root: ha.reduce(good, root=root),
        lambda root: ha.gather(good, out, root=root),
        lambda root: ha.scatter(out, good, root=root),
    ):
        with pytest.raises(HalayError if me == 0 else ValueError, match="1099511627776"):
            call(0 if me == 0 else 2**40)
    with pytest.raises(HalayError if me == 0 else ValueError, match="allgather: "):
        ha.allgather(good, numpy.zeros(8, "f4"), counts=[4, 4 if me == 0 else 2**70])


def rank_gpu():
    me, nranks = ha.rank(), ha.size()
    base, total = torch.arange(6, dtype=torch.float32), nranks * (nranks + 1) / 2
    for dtype in TYPES:
        x, op = cuda((base * (me + 1)).to(dtype)), "lor" if dtype is torch.bool else "sum"
        given = Array(x)
        assert ha.allreduce(given, op=op) is given
        assert torch.equal(host(x), (base * total).to(dtype)), dtype
    for strides in ("none", (12, 4), [12, 4]):
        x, out = cuda((base + me).view(2, 3)), cuda(torch.zeros(2, 3))
        readonly = (x.data_ptr(), True)
        ha.allreduce(Array(x, data=readonly, strides=strides), Array(out, version=2), op="max")
        assert torch.equal(host(out), host(x) - me + nranks - 1)
    rows = cuda(torch.zeros(6 * nranks))
    ha.allgather(Array(cuda(base + me)), Array(rows))
    assert torch.equal(host(rows), torch.cat([base + r for r in range(nranks)]))
    ha.broadcast(Array(rows), root=1)
    assert ha.allreduce(Array(cuda(torch.zeros(0))))
    half = cuda(torch.full((5,), me + 0.5, dtype=torch.bfloat16))
    with legacy():
        ha.allreduce(DlpackOfGpu(half, byte_offset=64))
    assert torch.equal(host(half), torch.full((5,), sum(r + 0.5 for r in range(nranks))).bfloat16())


def rank_gpu_late():
    """Values that come behind the call's beginning: what says the stream is waited for."""
    base, nranks = torch.arange(6, dtype=torch.float32), ha.size()
    for step in range(4):
        x = cuda(torch.zeros(6))
        with halted(0.2):
            come(x, base + step)
            ha.allreduce(Array(x, stream=stream_handle()))
        assert torch.equal(host(x), (base + step) * nranks), step
    with legacy():
        for make in (lambda x: Array(x, stream=1), DlpackOfGpu, lambda x: DlpackOfGpu(x, 13)):
            x = cuda(torch.zeros(6))
            with halted(0.2):
                come(x, base)
                given = make(x)
                ha.allreduce(given)
            assert torch.equal(host(x), base * nranks)
            assert getattr(given, "asked", [1]) == [1]
    # An output, too, is touched only behind its stream.
    out = cuda(torch.zeros(6))
    with halted(0.2):
        come(out, -base)
        ha.allreduce(Array(cuda(base)), Array(out, stream=stream_handle()))
    assert torch.equal(host(out), base * nranks)


def rank_gpu_refused():
    me, nranks = ha.rank(), ha.size()
    good = torch.ones(4)
    freed = cuda(good)
    if me == 1:
        freed.free()
    x = cuda(good)
    wide = cuda(torch.ones(4, 4))
    cases = [
        (Array(x, version=4), ValueError, "version 4; up to 3"),
        (Array(x, version="none"), ValueError, "version None"),
        (Array(x, data="none"), ValueError, "lacks data"),
        (Array(x, mask=Array(x)), ValueError, "masked"),
        (Array(x, stream=0), ValueError, "stream 0, which is ambiguous"),
        (Array(x, stream=2), ValueError, "per-thread default stream"),
        (Array(x, strides=(8,)), ValueError, "make a contiguous copy"),
        (Array(wide, strides=(4, 16)), ValueError, "make a contiguous copy"),
        (Array(x, data=(x.data_ptr(), True)), ValueError, "may not be written to"),
        (Array(x, data=(0, False)), ValueError, "was its memory freed"),
        (Array(x, typestr=">f4"), TypeError, "order of bytes"),
        (Array(x, typestr="<f16"), TypeError, "'<f16' are not supported"),
        (Array(x, typestr="|V4"), TypeError, "'|V4' are not supported"),
        (Array(freed), HalayError, "freed"),
        (Array(freed, stream=stream_handle()), HalayError, "freed"),
        (Array(x, stream=0x7F0000001230), HalayError, "the stream in which its values come"),
        (DlpackOfGpu(x, 10), ValueError, "device of DLPack's type 10"),
        (DlpackOfGpu(x, lanes=4), TypeError, "4 lanes"),
        (DlpackOfGpu(x, code=3), TypeError, "code 3"),
        (good.numpy(), HalayMismatch, "memory"),
    ]
    for wrong, kind, words in cases:
        words = words.replace("|", r"\|")
        with pytest.raises(kind if me == 1 else HalayError, match=words):
            ha.allreduce(wrong if me == 1 else Array(cuda(good)))
        y = cuda(good)
        ha.allreduce(Array(y))
        assert host(y).tolist() == [nranks] * 4, (kind, words)
    with halted(12):  # for longer than is waited
        come(x, good)
        with pytest.raises(HalayError) as caught:
            ha.allreduce(Array(x, stream=stream_handle() if me == 1 else None))
    assert caught.value.code == lib.HALAY_ETIMEOUT
    assert "the stream in which its values come" in str(caught.value)


def rank_all_gpu():
    rank_gpu()
    rank_gpu_late()
    rank_gpu_refused()


def rank_all_host():
    rank_host()
    rank_more()


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_host(job, nranks):
    job(nranks, rank_all_host)


def rank_late():
    """Rank 0 answers, by the thread that makes progress, but its program is in no call."""
    ha.barrier()
    if ha.rank() == 0:
        time.sleep(2)
    ha.broadcast(numpy.ones(2))


def rank_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = (numpy.arange(6) + ha.rank()).astype(ml_dtypes.bfloat16)
    assert ha.allreduce(x).astype("f4").tolist() == [2 * i + 1 for i in range(6)]
    frozen = x.copy()
    frozen.flags.writeable = False
    for wrong, words in (
        (x.astype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn are not supported; convert"),
        (x[::2], "make a contiguous copy"),
        (frozen, "may not be written to"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            ha.allreduce(wrong)


def test_bfloat16_of_ml_dtypes(job):
    pytest.importorskip("ml_dtypes")
    job(2, rank_bfloat16)


def test_the_notice_of_a_rank_in_no_call(tmp_path):
    arguments = [str(HERE / "rank_main.py"), "test_arrays", "rank_late", "[]", str(tmp_path)]
    status, said = halayrun(2, [sys.executable, *arguments])
    assert status == 0, said
    assert "rank 0 of 2 on" in said and "has not made this call" in said, said
    assert "it is in another one" not in said, said


CYCLES = """
import gc, numpy
from halay import mem
from halay._arrays import seen

for held in (numpy.empty(2), bytearray(8), memoryview(bytearray(8)), numpy.float32(1)):
    for look in (seen, mem._place):
        if look is seen or not memoryview(held).readonly:
            cycle = [look(held)]
            cycle.append(cycle)
            del cycle
            gc.collect()
print("well")
"""


def test_arrays_in_cycles():
    """As where a program keeps an exception: its traceback has the array that a call was given."""
    status, said = run([sys.executable, "-c", CYCLES], 60, environment())
    assert status == 0 and said == "well\n", said


def test_refused_on_all_ranks(job):
    job(2, rank_refused)
    job(2, rank_too_large)


def test_gpu(job):
    job(2, rank_all_gpu, env=ENV)


def test_capsules_are_given_back():
    ha.init()
    try:
        x = numpy.ones(1000)
        gone = weakref.ref(x)
        for _ in range(3):
            ha.allreduce(OnlyDlpack(x))
            ha.allreduce(OnlyDlpack(x, old=True))
        del x
        gc.collect()
        assert gone() is None
        assert (ha.rank(), ha.size()) == (0, 1)
    finally:
        ha.shutdown()


def test_without_init():
    with pytest.raises(ValueError, match="not been initialized"):
        ha.allreduce(numpy.ones(1))
