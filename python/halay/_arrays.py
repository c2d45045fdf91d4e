# SPDX-License-Identifier: Apache-2.0
"""Where the elements of somebody's array are: of what has a buffer (NumPy's arrays, bytearray), of
DLPack's, and of what has a __cuda_array_interface__. Nothing is copied, no framework is needed.

A DLPack capsule is borrowed: it is kept for the call, and its own end gives the memory back. Its
maker is asked to order the legacy stream behind its work, and that stream is followed.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._core import address_of, ffi, lib

_TYPES: dict[tuple[str, int], int] = {
    **{("i", n): getattr(lib, f"HALAY_INT{8 * n}") for n in (1, 2, 4, 8)},
    **{("u", n): getattr(lib, f"HALAY_UINT{8 * n}") for n in (1, 2, 4, 8)},
    **{("f", n): getattr(lib, f"HALAY_FLOAT{8 * n}") for n in (2, 4, 8)},
    **{("c", n): getattr(lib, f"HALAY_COMPLEX{8 * n}") for n in (8, 16)},
    ("b", 1): lib.HALAY_BOOL,
    ("bfloat", 2): lib.HALAY_BFLOAT16,
}
_KINDS = {  # of the struct module's letters
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efd", "f"),
    **dict.fromkeys(("Zf", "Zd", "F", "D"), "c"),
    "?": "b",
}
_NBYTES = {type_: nbytes for (_, nbytes), type_ in _TYPES.items()}
_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 4: "bfloat", 5: "c", 6: "b"}
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY, _IS_COPIED = 1, 2
_LEGACY, _PER_THREAD = 1, 2  # streams, in both interfaces
_NEWEST = 3  # version of the __cuda_array_interface__
_MASKED = "it is masked; fill what is masked, and give its data without the mask"

_capsule_pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_capsule: Any = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Seen(NamedTuple):
    """An array, as a call takes it. stream: of CUDA, in which its values come; None: they are
    there. keep: what has to live as long as it is used."""

    address: int
    elements: int
    type: int
    writable: bool
    stream: int | None
    keep: object

    @property
    def pointer(self) -> Any:
        return ffi.cast("void *", self.address) if self.elements > 0 else _EMPTY

    @property
    def end(self) -> int:
        """The address after it."""
        return self.address + self.elements * _NBYTES[self.type]


_EMPTY = ffi.new("char[]", 16)  # a valid address for arrays without elements


def _type(kind: str | None, nbytes: int, said: object) -> int:
    found = _TYPES.get((kind or "", nbytes))
    if found is None:
        raise TypeError(f"elements of type {said} are not supported; convert the array")
    return found


def _check_dense(shape: Sequence[int], strides: Sequence[int] | None, unit: int) -> int:
    """How many elements, if they lie one after the other in C's order. unit: of a stride."""
    count = math.prod(shape)
    step = unit
    for extent, stride in zip(reversed(shape), reversed(strides if strides is not None else ())):
        if count > 0 and extent > 1 and stride != step:
            raise ValueError(
                f"its elements do not lie one after the other (shape {tuple(shape)}, strides "
                f"{tuple(strides or ())}); make a contiguous copy, in C's order"
            )
        step *= extent
    return count


def _of_buffer(view: memoryview) -> Seen:
    text = view.format.lstrip("@=" if view.itemsize > 1 else "@=<>")
    native = text[1:] if text[:1] == "<" else text
    type_ = _type(_KINDS.get(native), view.itemsize, repr(view.format))
    count = _check_dense(view.shape or (), view.strides, view.itemsize)
    return Seen(address_of(view) if count else 0, count, type_, not view.readonly, None, view)


def _of_numpy(array: Any) -> Seen:
    """Of elements that a buffer has no letter for: ml_dtypes' bfloat16, and those refused."""
    type_ = _type("bfloat" if array.dtype.name == "bfloat16" else None, array.itemsize, array.dtype)
    return _of_buffer(memoryview(array.view("u2")))._replace(type=type_)


def _capsule_of(array: Any, stream: int | None) -> Any:
    try:
        return array.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # its maker is older than DLPack 1.0
        return array.__dlpack__(stream=stream)


def _of_dlpack(array: Any) -> Seen:
    device = int(array.__dlpack_device__()[0])
    if device not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise ValueError(
            f"it is on a device of DLPack's type {device}; only memory of the CPU and of CUDA "
            "devices is supported: copy it there"
        )
    stream = _LEGACY if device in (_CUDA, _CUDA_MANAGED) else None
    capsule = _capsule_of(array, stream)
    flags = 0
    if _is_capsule(capsule, b"dltensor_versioned"):
        address = _capsule_pointer(capsule, b"dltensor_versioned")
        versioned = ffi.cast("DLManagedTensorVersioned *", address)
        if versioned.major != 1:
            raise ValueError(f"its DLPack is of version {versioned.major}; 1 is what is known")
        tensor, flags = versioned.dl_tensor, int(versioned.flags)
    elif _is_capsule(capsule, b"dltensor"):
        tensor = ffi.cast("DLManagedTensor *", _capsule_pointer(capsule, b"dltensor")).dl_tensor
    else:
        raise TypeError(f"its __dlpack__() gave no capsule of DLPack, but {capsule!r}")
    type_ = _type(
        _DLPACK_KINDS.get(tensor.dtype.code) if tensor.dtype.lanes == 1 else None,
        tensor.dtype.bits // 8,
        f"(code {tensor.dtype.code}, {tensor.dtype.bits} bits, {tensor.dtype.lanes} lanes)",
    )
    shape = [int(tensor.shape[i]) for i in range(tensor.ndim)]
    strides = None
    if tensor.strides != ffi.NULL:
        strides = [int(tensor.strides[i]) for i in range(tensor.ndim)]
    count = _check_dense(shape, strides, 1)
    address = int(ffi.cast("uintptr_t", tensor.data)) + int(tensor.byte_offset)
    writable = flags & (_READ_ONLY | _IS_COPIED) == 0
    return Seen(address, count, type_, writable, stream, capsule)


def _stream_of(interface: dict[str, Any]) -> int | None:
    stream = interface.get("stream")
    if stream is None or interface["version"] < _NEWEST:
        return None
    if stream == 0:
        raise ValueError(
            "its __cuda_array_interface__ has stream 0, which is ambiguous: 1 is the legacy "
            "stream, None says that the values are there"
        )
    if stream == _PER_THREAD:
        raise ValueError(
            "its values come in CUDA's per-thread default stream, which is another one on each "
            "thread: synchronize with it and export stream None, or use a stream of your own"
        )
    return int(stream)


def _of_interface(array: Any, interface: dict[str, Any]) -> Seen:
    version = interface.get("version")
    if not isinstance(version, int) or version > _NEWEST:
        raise ValueError(
            f"its __cuda_array_interface__ is of version {version!r}; up to {_NEWEST} are known"
        )
    missing = [key for key in ("shape", "typestr", "data") if key not in interface]
    if missing:
        raise ValueError(f"its __cuda_array_interface__ lacks {', '.join(missing)}")
    if interface.get("mask") is not None:
        raise ValueError(_MASKED)
    typestr = str(interface["typestr"])
    if typestr[:1] == ">":
        raise TypeError(f"its elements ({typestr}) are not in the processor's order of bytes")
    size = int(typestr[2:]) if typestr[2:].isdecimal() else 0
    type_ = _type(typestr[1:2], size, repr(typestr))
    shape = [int(extent) for extent in interface["shape"]]
    count = _check_dense(shape, interface.get("strides"), size)
    address, readonly = interface["data"]
    if count > 0 and not address:
        raise ValueError("its __cuda_array_interface__ has no address: was its memory freed?")
    return Seen(int(address or 0), count, type_, not readonly, _stream_of(interface), array)


def seen(array: object) -> Seen:
    """An array of whatever kind; TypeError or ValueError say why it cannot be used."""
    numpy_ma = sys.modules.get("numpy.ma")
    if numpy_ma is not None and isinstance(array, numpy_ma.MaskedArray):
        raise ValueError(_MASKED)
    try:
        view = memoryview(array)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # none, or of elements that it has no letter for
        pass
    else:
        return _of_buffer(view)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _of_numpy(array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _of_dlpack(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return _of_interface(array, interface)
    raise TypeError("it has no buffer, no __dlpack__ and no __cuda_array_interface__")
