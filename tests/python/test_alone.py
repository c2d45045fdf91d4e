# SPDX-License-Identifier: Apache-2.0
"""One rank, this process: the surface, its life cycle, and what it refuses."""

import gc
import importlib
import os
import subprocess
import threading
import time
from functools import partial

import pytest
import torch

import halay.torch as hvd
from halay._core import ffi, lib
from halay.horovod import probes

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
# complex32 is what there was before the 8-bit types.
UNSUPPORTED = [torch.complex32, *(getattr(torch, name) for name in FLOAT8 if hasattr(torch, name))]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def test_topology(alone):
    assert (alone.rank(), alone.size()) == (0, 1)
    assert (alone.local_rank(), alone.local_size()) == (0, 1)
    assert (alone.cross_rank(), alone.cross_size()) == (0, 1)
    assert alone.transport() == "none"
    assert len(alone.hosts()) == 1 and alone.hosts()[0]


def test_not_initialized():
    tensor = torch.zeros(1)
    calls = [
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.cross_size,
        hvd.barrier,
        hvd.stop_timeline,
        hvd.transport,
        lambda: hvd.allreduce(tensor),
        lambda: hvd.allgather(tensor),
        lambda: hvd.broadcast(tensor, 0),
        lambda: hvd.poll(1),
        lambda: hvd.synchronize(1),
    ]
    assert not hvd.is_initialized()
    for call in calls:
        with pytest.raises(ValueError, match=r"not been initialized; use hvd\.init\(\)"):
            call()
    hvd.shutdown()


def test_init_twice_and_again_after_shutdown():
    for _ in range(5):
        hvd.init()
        hvd.init()
        assert hvd.is_initialized()
        assert hvd.allreduce(torch.ones(2)).tolist() == [1, 1]
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()


def test_cycles_leave_no_descriptor_and_no_thread():
    def cycle():
        hvd.init()
        hvd.allreduce(torch.ones(10))
        hvd.shutdown()

    cycle()
    descriptors, threads = os.listdir("/proc/self/fd"), os.listdir("/proc/self/task")
    for _ in range(50):
        cycle()
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    # A thread that has ended may be listed for a moment more: one of a test before, too.
    for _ in range(100):
        if len(os.listdir("/proc/self/task")) <= len(threads):
            break
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= len(threads)


def test_init_arguments():
    with pytest.raises(NotImplementedError, match="part of the job"):
        hvd.init(comm=[1])
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="static")
    with pytest.raises(ValueError, match="some of the 1 of this job"):
        hvd.init(process_sets=[hvd.ProcessSet([5])])
    assert not hvd.is_initialized()
    hvd.init(comm=[0], process_sets="dynamic")
    assert hvd.is_homogeneous() and hvd.global_process_set.ranks == [0]
    hvd.shutdown()


def test_probes(tmp_path, monkeypatch):
    """They are those of `import horovod`, and tell of the NCCL that is there."""
    for name in probes.PROBES:
        assert getattr(hvd, name) is getattr(probes, name)
    assert hvd.gloo_built() and hvd.cuda_built() and not hvd.mpi_built()
    assert probes.gpu_available("torch") == torch.cuda.is_available()
    assert probes.gpu_available("horovod.torch") == torch.cuda.is_available()
    assert not probes.gpu_available("no_such_framework")
    source = tmp_path / "nccl.c"
    for version, said in ((22809, 22809), (21700, 0)):
        source.write_text(f"int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}\n")
        library = tmp_path / f"libnccl-{version}.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        monkeypatch.setenv("HALAY_NCCL_LIBRARY", str(library))
        assert hvd.nccl_built() == said
    for value in ("off", "own", "own:1", str(tmp_path / "none.so")):
        monkeypatch.setenv("HALAY_NCCL_LIBRARY", value)
        assert hvd.nccl_built() == 0


def test_horovods_numbers():
    numbers = (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
    assert numbers == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.complex64, torch.complex128])
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum, hvd.Product, hvd.Min, hvd.Max])
def test_one_rank_changes_nothing(alone, dtype, op):
    if dtype.is_complex and op in (hvd.Min, hvd.Max):
        with pytest.raises(TypeError, match="does not take this dtype"):
            alone.allreduce(torch.zeros(3, dtype=dtype), op=op)
        return
    tensor = torch.tensor([0, 1, 2, 100], dtype=dtype).reshape(2, 2)
    result = alone.allreduce(tensor, op=op)
    assert torch.equal(result, tensor)
    assert result.data_ptr() != tensor.data_ptr()


def test_in_place_returns_the_tensor(alone):
    tensor = torch.arange(5.0)
    assert alone.allreduce_(tensor, op=hvd.Sum) is tensor
    assert alone.broadcast_(tensor, 0) is tensor
    assert alone.synchronize(alone.allreduce_async_(tensor, prescale_factor=2.0)) is tensor
    assert tensor.tolist() == [0, 2, 4, 6, 8]


def test_scalars_and_empty_tensors(alone):
    assert alone.allreduce(torch.tensor(3.0)).item() == 3
    assert alone.allreduce(torch.empty(0, 4)).shape == (0, 4)
    assert alone.broadcast(torch.empty(0), 0).shape == (0,)
    assert alone.allgather(torch.empty(3, 0)).shape == (3, 0)
    assert alone.allgather(torch.empty(0, 3)).shape == (0, 3)


def test_tensors_are_kept_alive(alone):
    handles = [alone.allreduce_async(torch.full((1000,), float(i))) for i in range(50)]
    gc.collect()
    for i, handle in enumerate(handles):
        assert torch.equal(alone.synchronize(handle), torch.full((1000,), float(i)))


def test_zero_copy(alone):
    """An in-place view of a bigger tensor: the bytes are changed where they lie."""
    whole = torch.ones(10)
    alone.allreduce_(whole[2:5], op=hvd.Sum, postscale_factor=7.0)
    assert whole.tolist() == [1, 1, 7, 7, 7, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: torch.empty(3, device="meta"), ValueError, ["device meta", "torch.empty_like"]),
        (lambda: torch.eye(3).to_sparse(), ValueError, ["sparse", "to_dense()"]),
        *(
            (partial(torch.zeros, 2, dtype=dtype), TypeError, [str(dtype), "(2,)", "torch.uint8"])
            for dtype in UNSUPPORTED
        ),
        (lambda: [1.0, 2.0], TypeError, ["torch.Tensor", "list"]),
        (lambda: None, TypeError, ["torch.Tensor", "NoneType"]),
    ],
)
def test_unsupported_tensors(alone, make, error, words):
    calls = {
        "allreduce": [alone.allreduce_, alone.allreduce],
        "allgather": [alone.allgather],
        "broadcast": [
            lambda t, **k: alone.broadcast_(t, 0, **k),
            lambda t, **k: alone.broadcast(t, 0, **k),
        ],
    }
    for kind, functions in calls.items():
        for function in functions:
            with pytest.raises(error) as caught:
                function(make(), name="x")
            for word in [kind, *words]:
                assert word in str(caught.value)
    assert alone.allreduce(torch.ones(1), name="x").item() == 1


def test_wrong_arguments(alone):
    tensor = torch.ones(2)
    with pytest.raises(ValueError, match="not both"):
        alone.allreduce(tensor, average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="op=9"):
        alone.allreduce(tensor, op=9)
    with pytest.raises(TypeError, match="Adasum takes floating point"):
        alone.allreduce(tensor.int(), op=hvd.Adasum)
    with pytest.raises(ValueError, match="need op Average, Sum or Adasum"):
        alone.allreduce(tensor, op=hvd.Max, prescale_factor=2.0)
    with pytest.raises(TypeError, match="bool takes"):
        alone.allreduce(torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="root_rank 1 is not one of the 1 ranks"):
        alone.broadcast(tensor, 1)
    with pytest.raises(ValueError, match="root_rank -1"):
        alone.broadcast_(tensor, -1)
    with pytest.raises(ValueError, match="scalar"):
        alone.allgather(torch.tensor(1.0))
    with pytest.raises(ValueError, match="invalid params"):
        alone.broadcast_parameters(tensor, 0)
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        alone.broadcast_parameters({"a": 1}, 0)


@pytest.mark.parametrize("compiles", [False, True])
def test_average_is_the_old_spelling(alone, compiles):
    if compiles:  # a program that has used torch.compile: there are more functions between
        importlib.import_module("torch._dynamo")

    def begun(*args, **options):
        return alone.synchronize(alone.allreduce_async(*args, **options))

    for call in (alone.allreduce, begun):
        with pytest.warns(DeprecationWarning) as told:
            assert call(torch.ones(1), average=False).item() == 1
        assert told[0].filename == __file__


def test_names(alone):
    longest = "n" * (lib.HALAY_TENSOR_NAME_MAX - 1 - len("allreduce."))
    assert alone.allreduce(torch.ones(1), name=longest).item() == 1
    assert alone.allreduce(torch.ones(1), name="gewicht/äöü").item() == 1
    with pytest.raises(ValueError, match="shorten it"):
        alone.allreduce(torch.ones(1), name=longest + "n")
    with pytest.raises(ValueError, match="zero byte"):
        alone.allreduce(torch.ones(1), name="a\0b")


def test_handles_are_used_once(alone):
    handle = alone.allreduce_async(torch.ones(1))
    alone.synchronize(handle)
    for call in (alone.poll, alone.synchronize):
        with pytest.raises(ValueError, match="is not out"):
            call(handle)
        with pytest.raises(ValueError, match="is not out"):
            call(10**9)


def test_handle_of_an_earlier_init():
    hvd.init()
    stale = hvd.allreduce_async(torch.ones(1))
    hvd.shutdown()
    hvd.init()
    hvd.allreduce_async(torch.ones(1))
    with pytest.raises(ValueError, match="earlier init"):
        hvd.synchronize(stale)
    hvd.shutdown()


@pytest.mark.skipif(
    not hasattr(torch.autograd.graph, "increment_version"),
    reason="this torch has no increment_version (2.1 and later have)",
)
def test_autograd_sees_the_write(alone):
    weight = torch.ones(3, requires_grad=True)
    factor = torch.ones(3)
    loss = (weight * factor).sum()
    alone.allreduce_(factor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_tensors_with_gaps(alone):
    base = torch.arange(12.0).reshape(3, 4)
    calls = [alone.allreduce, alone.allgather, lambda t: alone.broadcast(t, 0)]
    views = [base.t(), base[:, 1:3], base[0].expand(3, 4), base[::2], torch.tensor([1 + 2j]).conj()]
    for view in views:
        for call in calls:
            assert torch.equal(call(view), view)
    part = base[:, 1]
    assert alone.allreduce_(part, op=hvd.Sum, prescale_factor=2.0) is part
    assert base[:, 1].tolist() == [2, 10, 18] and base[:, 0].tolist() == [0, 4, 8]
    conjugate = torch.tensor([1 + 2j])
    alone.broadcast_(conjugate.conj(), 0)
    assert conjugate.tolist() == [1 + 2j]
    for call in (alone.allreduce_, lambda t: alone.broadcast_(t, 0)):
        with pytest.raises(ValueError, match=r"share memory \(strides \(0, 1\)\)"):
            call(torch.ones(4).expand(3, 4))


def test_gradients_of_reductions_without_one(alone):
    tensor = torch.ones(2, requires_grad=True)
    for op in (hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(RuntimeError, match="no gradient"):
            alone.allreduce(tensor, op=op).sum().backward()
    with torch.no_grad():
        assert not alone.broadcast(tensor, 0).requires_grad


def test_threads(alone):
    failures = []

    def work(number):
        try:
            for i in range(50):
                tensor = torch.full((100,), float(number * i))
                assert torch.equal(alone.allreduce(tensor, name=f"t{number}.{i}"), tensor)
                assert torch.equal(alone.allreduce(tensor), tensor)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_failed_init_tells_why(monkeypatch):
    monkeypatch.setenv("HALAY_DEADLINE", "soon")
    with pytest.raises(hvd.HalayError, match="HALAY_DEADLINE") as caught:
        hvd.init()
    assert (caught.value.code, caught.value.name) == (lib.HALAY_EINVAL, "HALAY_EINVAL")
    assert not hvd.is_initialized()


def in_child(body):
    """Runs body in a forked child. Returns its exit status and what it wrote."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        status = 3
        try:
            os.write(writer, str(body()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def test_calls_in_a_forked_child(alone):
    handle = alone.allreduce_async(torch.ones(4), name="out")
    expected = ffi.string(lib.halay_strerror(lib.HALAY_EFORKED)).decode()
    calls = [
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.rank(),
        lambda: hvd.synchronize(handle),
        lambda: hvd.poll(handle),
        lambda: hvd.barrier(),
        lambda: hvd.init(),
        lambda: hvd.shutdown(),
    ]

    def body():
        said = []
        for call in calls:
            try:
                call()
                said.append("nothing")
            except hvd.HalayForked as error:
                said.append(error.verdict)
        return said, hvd.is_initialized()

    assert in_child(body) == (0, str(([expected] * len(calls), False)))
    assert alone.synchronize(handle).tolist() == [1] * 4
