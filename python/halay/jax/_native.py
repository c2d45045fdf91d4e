# SPDX-License-Identifier: Apache-2.0
"""libhalay_xla.so: what compiled programs call, and their gates to the trainers."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any, Callable

import jax
import jaxlib

from .. import _session
from .._core import ffi, lib, library_path
from .._session import Members

try:
    from jax import ffi as ffi_of_jax
except ImportError as _cause:
    raise ImportError(
        f"halay.jax needs JAX 0.5 or newer; this is {jax.__version__}: pip install -U jax"
    ) from _cause

__all__ = ["ffi_of_jax", "gate_of"]

_NAME = "libhalay_xla.so"
TARGETS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")


def _address(function: Any) -> int:
    return int(ffi.cast("uintptr_t", function))


def _load() -> Any:
    beside = Path(library_path).resolve().parent / _NAME
    path = str(beside) if os.sep in library_path else _NAME
    try:
        found = ffi.dlopen(path, ffi.RTLD_NOW | ffi.RTLD_LOCAL | ffi.RTLD_NODELETE)
    except OSError as cause:
        raise ImportError(
            f"halay.jax needs {_NAME} beside {library_path}: {cause}. It is built and installed "
            "with Halay's library"
        ) from cause
    if found.halay_xla_library() != _address(ffi.addressof(lib, "halay_version")):
        raise ImportError(
            f"{path} has found another libhalay.so.0 than {library_path}: set HALAY_LIBRARY to "
            "the one beside it"
        )
    return found


_xla = _load()
# By the number of the process set, and for ever: compiled programs know their addresses.
_gates: dict[int, Any] = {}


def _begin(members: Members) -> Callable[[], None]:
    gate = _gates.get(members.number)
    if gate is None:
        gate = _gates[members.number] = _xla.halay_xla_gate_create()
        if gate == ffi.NULL:
            raise MemoryError("halay.jax")
    _xla.halay_xla_gate_open(gate, members.trainer, members.rank, members.size)

    def end() -> None:
        # Programs that still run have calls to make, for which other ranks wait.
        for array in jax.live_arrays():
            with contextlib.suppress(Exception):  # it is told to who looks at the array
                array.block_until_ready()
        _xla.halay_xla_gate_close(gate)

    return end


def gate_of(members: Members) -> int:
    """The address that a compiled program is given: as long as the process lives."""
    return _address(_gates[members.number])


def _minor() -> int:
    """The minor version of the interface in the installed jaxlib; the major has to be 0."""
    header = Path(ffi_of_jax.include_dir(), "xla", "ffi", "api", "c_api.h")
    try:
        text = header.read_text()
    except OSError:
        return 0  # newer ones say it themselves
    major, minor = (
        int(re.findall(rf"#define XLA_FFI_API_{part} (\d+)", text)[0])
        for part in ("MAJOR", "MINOR")
    )
    if major != 0:
        raise ImportError(
            f"halay.jax speaks version 0 of XLA's foreign function interface; jaxlib "
            f"{jaxlib.__version__} has version {major}: use an older jaxlib, or a newer Halay"
        )
    return minor


def _register() -> None:
    _xla.halay_xla_speak(_minor())
    for target in TARGETS:
        handler = _address(ffi.addressof(_xla, f"halay_xla_{target}"))
        ffi_of_jax.register_ffi_target(
            f"halay_{target}", ffi_of_jax.pycapsule(handler), platform="cpu", api_version=1
        )


_register()
_session.at_trainer(_begin)
