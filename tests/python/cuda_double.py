# SPDX-License-Identifier: Apache-2.0
"""Tensors that say they are on a CUDA device, for a torch without CUDA: a subclass of Tensor with
memory of the double of CUDA's driver (LD_LIBRARY_PATH: build/double), which crashes whoever touches
it at its address. Torch's operations work on it through the double's hidden mapping. There is no
autograd for such tensors. The current stream is one of the double's, the same for all threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
from cffi import FFI
from torch.utils._pytree import tree_map

from halay import _tensors

_ffi = FFI()
_ffi.cdef("""
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuMemAlloc_v2(uint64_t *at, size_t bytes);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamSynchronize(void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream);
void *cuda_double_inside(uint64_t at, size_t bytes);
int cuMemFree_v2(uint64_t at);
void cuda_double_halt(int halted);
void cuda_double_legacy(void *stream);
""")
DEVICE = torch.device("cuda:0")
waits: list[torch.device] = []  # of the processor, for a stream
used: list[tuple[torch.Tensor, _Stream]] = []  # as the allocator was told


class _Event:
    """Never freed."""

    def __init__(self, stream: _Stream) -> None:
        made, self.gpu = _ffi.new("void **"), stream.gpu
        with self.gpu:
            assert self.gpu.lib.cuEventCreate(made, 2) == 0
            assert self.gpu.lib.cuEventRecord(made[0], stream.handle) == 0
        self.handle = made[0]

    def query(self) -> bool:
        with self.gpu:
            return bool(self.gpu.lib.cuEventQuery(self.handle) == 0)


class _Stream:
    def __init__(self, gpu: _Gpu) -> None:
        made = _ffi.new("void **")
        self.gpu = gpu
        with gpu:
            assert gpu.lib.cuStreamCreate(made, 1) == 0
        self.handle = made[0]
        self.cuda_stream = int(_ffi.cast("uintptr_t", made[0]))

    def synchronize(self) -> None:
        waits.append(DEVICE)
        with self.gpu:
            assert self.gpu.lib.cuStreamSynchronize(self.handle) == 0

    def record_event(self) -> _Event:
        return _Event(self)

    def wait_event(self, event: _Event) -> None:
        with self.gpu:
            assert self.gpu.lib.cuStreamWaitEvent(self.handle, event.handle, 0) == 0


class _Gpu:
    def __init__(self, ordinal: int = 0) -> None:
        self.lib = _ffi.dlopen("libcuda.so.1")
        self.context = _ffi.new("void **")
        assert self.lib.cuInit(0) == 0
        assert self.lib.cuDevicePrimaryCtxRetain(self.context, ordinal) == 0
        self.stream = _Stream(self)

    def use(self) -> None:
        """Has the package's calls of torch.cuda be about it."""
        _tensors.current = lambda device: self.stream
        _tensors.make_stream = lambda device: _Stream(self)
        _tensors.on = lambda stream: contextlib.nullcontext()  # torch's work is done at once
        _tensors.use_on = lambda tensor, stream: used.append((tensor, stream))
        _tensors.brought = lambda values, device: cuda(values)
        _tensors._PLAIN = (*_tensors._PLAIN, CudaTensor)  # it has memory of its own

    def __enter__(self) -> None:
        assert self.lib.cuCtxPushCurrent_v2(self.context[0]) == 0

    def __exit__(self, *_: object) -> None:
        self.lib.cuCtxPopCurrent_v2(_ffi.new("void **"))

    def alloc(self, like: torch.Tensor) -> tuple[int, torch.Tensor]:
        """Memory for as many elements, and how torch sees it; never freed."""
        count = max(1, like.numel()) * like.element_size()
        at, none = _ffi.new("uint64_t *"), _ffi.new("void **")
        self.lib.cuCtxPushCurrent_v2(self.context[0])
        assert self.lib.cuMemAlloc_v2(at, count) == 0
        self.lib.cuCtxPopCurrent_v2(none)
        hidden = _ffi.buffer(self.lib.cuda_double_inside(at[0], count), count)
        seen = torch.frombuffer(hidden, dtype=torch.uint8).view(like.dtype)
        return int(at[0]), seen[: like.numel()].view(like.shape)


_gpus: list[_Gpu] = []


class CudaTensor(torch.Tensor):
    """inner: what torch sees; begin: where the memory of inner's storage begins on the GPU."""

    inner: torch.Tensor
    begin: int

    @staticmethod
    def __new__(cls, inner: torch.Tensor, begin: int, device: torch.device = DEVICE) -> CudaTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            dtype=inner.dtype,
            device=device,
            storage_offset=inner.storage_offset(),
        )
        made.inner, made.begin = inner, begin
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def free(self) -> None:
        """Gives its memory back to the driver."""
        with _gpus[0]:
            assert _gpus[0].lib.cuMemFree_v2(self.begin) == 0

    def data_ptr(self) -> int:
        return self.begin + self.inner.storage_offset() * self.inner.element_size()

    # Torch without CUDA refuses the first three, and what stands for a tensor has no lazy signs.

    def copy_(self, src: torch.Tensor, non_blocking: bool = False) -> CudaTensor:
        self.inner.copy_(_inner(src))
        return self

    def contiguous(self) -> CudaTensor:
        return _outer(self.inner.contiguous(), [self])

    def __getitem__(self, key: object) -> CudaTensor:
        return _outer(self.inner[key], [self])

    def is_conj(self) -> bool:
        return self.inner.is_conj()

    def is_neg(self) -> bool:
        return self.inner.is_neg()

    def resolve_conj(self) -> CudaTensor:
        return _outer(self.inner.resolve_conj(), [self])

    def resolve_neg(self) -> CudaTensor:
        return _outer(self.inner.resolve_neg(), [self])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default and kwargs.get("device") == torch.device("cpu"):
            return args[0].inner.clone()
        given = [a for a in tree_map(lambda x: x, list(args)) if isinstance(a, CudaTensor)]
        found = func(*tree_map(_inner, args), **tree_map(_inner, kwargs or {}))
        return tree_map(lambda x: _outer(x, given), found)


def _inner(x: object) -> object:
    if isinstance(x, CudaTensor):
        return x.inner
    return torch.device("cpu") if x == DEVICE else x


def _outer(x: object, given: list[CudaTensor]) -> object:
    if not isinstance(x, torch.Tensor):
        return x
    for one in given:
        if one.inner is x:
            return one
        if one.inner.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            return CudaTensor(x, one.begin)
    return cuda(x)


def cuda(tensor: torch.Tensor) -> CudaTensor:
    """A copy on the GPU."""
    if not _gpus:
        _gpus.append(_Gpu())
        _gpus[0].use()
    begin, seen = _gpus[0].alloc(tensor)
    seen.copy_(tensor)
    return CudaTensor(seen, begin)


def other_gpu(tensor: torch.Tensor) -> CudaTensor:
    """A copy on another GPU."""
    begin, seen = _Gpu(1).alloc(tensor)
    seen.copy_(tensor)
    return CudaTensor(seen, begin, torch.device("cuda:1"))


@contextlib.contextmanager
def other_stream() -> Iterator[None]:
    """Another one is the current stream."""
    gpu = _gpus[0]
    before, gpu.stream = gpu.stream, _Stream(gpu)
    try:
        yield
    finally:
        gpu.stream = before


@contextlib.contextmanager
def halted(seconds: float | None = None) -> Iterator[None]:
    """Streams stand still: meanwhile, or for so long, whatever the block waits for."""
    lib = _gpus[0].lib
    lib.cuda_double_halt(1)
    timer = threading.Timer(seconds or 0, lib.cuda_double_halt, (0,))
    if seconds is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        lib.cuda_double_halt(0)


def stream_handle() -> int:
    """Of the current stream."""
    return _gpus[0].stream.cuda_stream


@contextlib.contextmanager
def legacy() -> Iterator[None]:
    """The current stream is the one that CUDA calls legacy: torch's default, whose handle is 0."""
    gpu = _gpus[0]
    stream, own = gpu.stream, gpu.stream.cuda_stream
    gpu.lib.cuda_double_legacy(stream.handle)
    stream.cuda_stream = 0
    try:
        yield
    finally:
        stream.cuda_stream = own
        gpu.lib.cuda_double_legacy(_ffi.NULL)


def come(tensor: CudaTensor, values: torch.Tensor) -> None:
    """The current stream will write the values to the tensor."""
    gpu, count = _gpus[0], values.numel() * values.element_size()
    data = _ffi.cast("void *", values.data_ptr())
    with gpu:  # the double copies what is not pinned at once
        assert gpu.lib.cuMemcpyHtoDAsync_v2(tensor.data_ptr(), data, count, gpu.stream.handle) == 0


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The values of one, which has to be on the GPU."""
    assert isinstance(tensor, CudaTensor) and tensor.device == DEVICE, type(tensor)
    return tensor.inner.clone()
