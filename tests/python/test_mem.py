# SPDX-License-Identifier: Apache-2.0
"""halay.mem: allocated and registered memory, what is refused, and when it ends."""

import numpy
import pytest
import torch

import halay.mem
import halay.torch as hvd
from halay._core import lib

COUNT = 100003


def sums(tensor):
    """What an allreduce in place makes of rank + 1, which is not what it is divided by."""
    tensor.fill_(hvd.rank() + 1)
    hvd.allreduce_(tensor, op=hvd.Sum)
    return [float(tensor.min()), float(tensor.max())]


def test_allocate(alone):
    with halay.mem.allocate(4 * COUNT) as memory:
        assert memory.nbytes == len(memory.view) == 4 * COUNT
        assert memory.address % 4096 == 0
        array = numpy.frombuffer(memory.view, dtype=numpy.float32)
        assert not array.any()
        tensor = torch.frombuffer(memory.view, dtype=torch.float32)
        assert tensor.data_ptr() == memory.address
        assert sums(tensor) == [1, 1]
        assert array[COUNT - 1] == 1
        assert not memory.closed
        del tensor, array
    assert memory.closed
    with pytest.raises(ValueError, match="released"):
        memory.view[0]
    memory.close()


@pytest.mark.parametrize(
    "buffer",
    [torch.zeros(COUNT), numpy.zeros((3, 5)), bytearray(77), memoryview(bytearray(9))[2:]],
    ids=["torch", "numpy", "bytearray", "memoryview"],
)
def test_register(alone, buffer):
    registration = halay.mem.register(buffer)
    if isinstance(buffer, torch.Tensor):
        assert (registration.address, registration.nbytes) == (buffer.data_ptr(), 4 * COUNT)
    again = halay.mem.register(buffer)  # an entry of its own
    assert (again.address, again.nbytes) == (registration.address, registration.nbytes)
    registration.close()
    registration.close()
    assert registration.closed and not again.closed
    again.close()


def test_memory_of_a_gpu_is_refused_by_name(alone):
    class Array:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": 1
        }  # fmt: skip

    with pytest.raises(ValueError, match="memory of the host; a GPU's"):
        halay.mem.register(Array())


def test_what_is_registered_stays_alive(alone):
    buffer = bytearray(100)
    with halay.mem.register(buffer), pytest.raises(BufferError):
        buffer.extend(b"more")
    buffer.extend(b"more")


def test_refused(alone):
    matrix = torch.zeros(4, 4)
    for wrong in (matrix.t()[:, :2], b"constant", numpy.zeros((4, 4))[:, 1]):
        with pytest.raises(ValueError, match="contiguous"):
            halay.mem.register(wrong)
    with pytest.raises(TypeError):
        halay.mem.register(17)
    for empty in (torch.zeros(0), bytearray()):
        with pytest.raises(hvd.HalayError) as caught:
            halay.mem.register(empty)
        assert caught.value.code == lib.HALAY_EINVAL
        assert "at least one byte" in caught.value.verdict
    for size in (0, -1):
        with pytest.raises(ValueError, match="bytes"):
            halay.mem.allocate(size)
    with pytest.raises(hvd.HalayError) as caught:
        halay.mem.allocate(1 << 60)
    assert caught.value.code == lib.HALAY_ENOMEM and caught.value.rank == 0
    assert f"no {1 << 60} bytes" in caught.value.verdict


def test_too_many(alone):
    entries = [halay.mem.register(bytearray(1)) for _ in range(256)]
    with pytest.raises(hvd.HalayError) as caught:
        halay.mem.register(bytearray(1))
    assert caught.value.code == lib.HALAY_ENOMEM
    assert "256 ranges at most; deregister some" in caught.value.verdict
    for entry in entries:
        entry.close()
    halay.mem.register(bytearray(1)).close()


def test_ends_with_the_session():
    with pytest.raises(ValueError, match="not been initialized"):
        halay.mem.allocate(1)
    hvd.init()
    memory, registration = halay.mem.allocate(10), halay.mem.register(bytearray(10))
    hvd.shutdown()
    assert memory.closed and registration.closed
    hvd.init()  # of another session, whose entries may have the same names
    other = halay.mem.register(bytearray(10))
    memory.close()
    registration.close()
    other.close()
    hvd.shutdown()


def sum_in_all():
    tensor = torch.zeros(COUNT)
    with halay.mem.allocate(4 * COUNT) as memory, halay.mem.register(tensor):
        return [sums(torch.frombuffer(memory.view, dtype=torch.float32)), sums(tensor)]


def test_two_ranks(job):
    assert job(2, sum_in_all) == [[[3, 3], [3, 3]]] * 2
