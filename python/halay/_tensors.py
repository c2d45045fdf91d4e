# SPDX-License-Identifier: Apache-2.0
"""Torch's types as Halay's, where a tensor's bytes are, and when they are there."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Callable, TypeVar

import torch

from ._core import cuda_stream, ffi, lib

TYPES: dict[torch.dtype, int] = {
    torch.int8: lib.HALAY_INT8,
    torch.uint8: lib.HALAY_UINT8,
    torch.int16: lib.HALAY_INT16,
    torch.int32: lib.HALAY_INT32,
    torch.int64: lib.HALAY_INT64,
    torch.bool: lib.HALAY_BOOL,
    torch.float16: lib.HALAY_FLOAT16,
    torch.bfloat16: lib.HALAY_BFLOAT16,
    torch.float32: lib.HALAY_FLOAT32,
    torch.float64: lib.HALAY_FLOAT64,
    torch.complex64: lib.HALAY_COMPLEX64,
    torch.complex128: lib.HALAY_COMPLEX128,
}
# These came with torch 2.3.
for _name in ("uint16", "uint32", "uint64"):
    if hasattr(torch, _name):
        TYPES[getattr(torch, _name)] = getattr(lib, f"HALAY_{_name.upper()}")

# What no operation is defined for moves all the same, as its bytes.
MOVED: dict[torch.dtype, int] = dict(TYPES)
for _name in (
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn_x2",
):
    if hasattr(torch, _name):
        MOVED[getattr(torch, _name)] = lib.HALAY_UINT8

# A valid address for a tensor without elements, whose own is zero: in memory of its kind, as ranks
# that have some compare the kinds.
_EMPTY = ffi.new("char[]", 16)
_EMPTY_ON: dict[torch.device, torch.Tensor] = {}

DEVICES = ("cpu", "cuda")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def outside_graph(function: _Function) -> _Function:
    """A function into which torch.compile does not look, as not into those of C++. To say so takes
    an import of a second, which only programs that compile have made."""
    if not hasattr(torch, "compiler") or not hasattr(torch.compiler, "is_compiling"):
        return function  # older than 2.1
    if "torch._dynamo" in sys.modules:
        now: _Function = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        return now
    disabled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal disabled
        if disabled is not None:
            return disabled(*args, **options)
        if "torch._dynamo" not in sys.modules:
            return function(*args, **options)
        made: Callable[..., Any] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        if not torch.compiler.is_compiling():  # code that is traced keeps nothing
            disabled = made
        return made(*args, **options)

    return call  # type: ignore[return-value]


def address(tensor: torch.Tensor) -> Any:
    """Where its bytes begin, as void *. The tensor has to outlive its use."""
    if tensor.numel() > 0:
        return ffi.cast("void *", tensor.data_ptr())
    if not tensor.is_cuda:
        return _EMPTY
    if tensor.device not in _EMPTY_ON:
        _EMPTY_ON[tensor.device] = tensor.new_empty(16)
    return ffi.cast("void *", _EMPTY_ON[tensor.device].data_ptr())


# What to do with a tensor that is a wrapper around others.
_INSTEAD = {
    "DTensor": "use tensor.to_local(), or tensor.full_tensor()",
    "FakeTensor": 'it stands for a tensor while a program is traced; the back end "fake" takes it',
    "FunctionalTensor": "it stands for a tensor while a program is traced",
    "NestedTensor": "use tensor.values(), and send its offsets, too",
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def waited(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or where it is the result of a functional collective (AsyncCollectiveTensor),
    its value, for which this waits."""
    wait = getattr(tensor, "trigger_wait", None)
    found: torch.Tensor = tensor if wait is None else wait()
    return found


def is_no_memory(tensor: torch.Tensor) -> bool:
    """Whether its class stands for values that are elsewhere, as a DTensor's shards are."""
    return type(tensor).__name__ in _INSTEAD or hasattr(tensor, "trigger_wait")


def plain(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """The tensor, if it has memory of its own; for a functional collective's result, waits for
    it and returns the value. Refuses others by the name of their class; `what` begins the text."""
    tensor = waited(tensor)
    kind = type(tensor)
    if tensor.is_nested or (
        kind not in _PLAIN and getattr(kind, "__torch_dispatch__", None) != _NO_DISPATCH
    ):
        name = "NestedTensor" if tensor.is_nested else kind.__name__
        instead = _INSTEAD.get(name, "use the plain tensor that it wraps")
        raise TypeError(f"{what}: a {name} has no memory of its own to send; {instead}")
    if tensor.device.type == "meta":
        raise ValueError(
            f"{what}: a tensor on device meta has no memory; make it on the CPU or a CUDA device "
            "first: torch.empty_like(tensor, device=...)"
        )
    return tensor


def refuse_unreal(tensor: torch.Tensor, what: str) -> None:
    """Refuses a plain strided tensor of a known device if its memory is not there."""
    try:
        if tensor.data_ptr() or tensor.numel() == 0:
            return
        lazy = tensor._is_zerotensor()
        reason = (
            "a tensor of zeros that has no memory yet; use tensor.clone()"
            if lazy
            else "the memory of its storage was freed, as by untyped_storage().resize_(0)"
        )
    except RuntimeError:
        reason = "it has no memory inside of torch.func's transforms; make the call outside of them"
    raise ValueError(f"{what}: tensor of shape {tuple(tensor.shape)}, {tensor.dtype}: {reason}")


def shares_memory(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor are one: it cannot be written then."""
    if tensor.is_contiguous():
        return False
    dims = sorted(zip(tensor.stride(), tensor.shape))
    reach, apart = 0, True
    for step, extent in dims:
        if extent > 1:
            apart = apart and step > reach
            reach += step * (extent - 1)
    if apart or tensor.numel() > reach + 1:
        return not apart
    at = torch.zeros(1, dtype=torch.int64)  # rare: steps that no nesting explains
    for step, extent in dims:
        at = (at[:, None] + step * torch.arange(extent)).reshape(-1)
    return len(set(at.tolist())) < at.numel()


def shared_error(tensor: torch.Tensor, what: str) -> ValueError:
    return ValueError(
        f"{what}: elements of it share memory (strides {tuple(tensor.stride())}), so it "
        "cannot be written in place; use tensor.clone()"
    )


def extent_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Where the bytes of a contiguous tensor begin and end."""
    at = tensor.data_ptr()
    return at, at + tensor.numel() * tensor.element_size()


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors have a byte in common."""
    (begin, end), (start, stop) = extent_of(one), extent_of(other)
    return begin < stop and start < end


def brought(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The host's values, on the device."""
    return values.to(device)


def no_tensor(what: object, call: str) -> TypeError:
    """The error for what is none. Arrays of others can be seen as one, on the same memory: their
    maker orders that with the current stream. Or halay.arrays takes them as they are."""
    text = f"{call}: needs a torch.Tensor, not {type(what).__name__}"
    if hasattr(what, "__dlpack__"):
        text += "; torch.from_dlpack() makes one of it, without a copy"
    elif hasattr(what, "__cuda_array_interface__"):
        text += '; torch.as_tensor(..., device="cuda") makes one of it, without a copy'
    else:
        return TypeError(text)
    return TypeError(text + "; or use halay.arrays, which takes any library's")


def current(device: torch.device) -> Any:
    """This thread's current stream of the device."""
    return torch.cuda.current_stream(device)


def make_stream(device: torch.device) -> Any:
    """Another stream, of torch's pool."""
    made: Any = torch.cuda.Stream
    return made(device)


def on(stream: Any) -> contextlib.AbstractContextManager[object]:
    """Makes it this thread's current stream of its device; None: changes nothing."""
    return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()


def follow(stream: Any, other: Any) -> None:
    """What comes later in the stream is behind all that the other one has to do now."""
    stream.wait_event(other.record_event())


def use_on(tensor: torch.Tensor, stream: Any) -> None:
    """Its memory is given out again only behind what the stream has to do now."""
    tensor.record_stream(stream)


def synchronize(stream: Any) -> None:
    """Waits on the processor for all that the stream has to do."""
    stream.synchronize()


def c_stream(stream: Any) -> Any:
    """The stream as a halay_stream_t *."""
    return cuda_stream(stream.cuda_stream)


# What submits a tensor: with the trainer, the name and where the ticket goes.
Start = Callable[[Any, bytes, Any], int]


def behind(start: Start, *tensors: torch.Tensor) -> Start:
    """Submits behind what the program's current stream has to do now, and waits for nothing.

    The library's own streams know nothing of the program's: so it reads and writes the tensors when
    whatever has produced the values, or used memory that the allocator has given out again, has
    ended. The result is there for every stream when the ticket is done.
    """
    streams = [c_stream(current(device)) for device in {t.device for t in tensors if t.is_cuda}]
    if not streams:
        return start

    def submit(trainer: Any, encoded: bytes, ticket: Any) -> int:
        for stream in streams:  # of one device, or the submission is refused
            code = int(lib.halay_trainer_after(trainer, encoded, stream))
            if code != 0:
                return code
        return start(trainer, encoded, ticket)

    return submit
