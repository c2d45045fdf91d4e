# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libhalay.so.0, through cffi's ABI mode: no compiler, no header at install time.

Every call into `lib` releases the GIL.
"""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from ._version import __version__
from .errors import (
    HalayBootError,
    HalayError,
    HalayForked,
    HalayMismatch,
    HalayOver,
    HalayPeerLost,
    HalayRevoked,
    HalayTimeout,
)

try:
    from . import _declared
except ModuleNotFoundError as _cause:
    raise ImportError("Halay needs the package cffi: pip install cffi") from _cause

SONAME = "libhalay.so.0"
TEXT_BYTES = 1024

ffi: Any = _declared.ffi
_PACKAGE = Path(__file__).resolve().parent


def _candidates() -> list[str]:
    """Where the library may be, in order of preference. The last one asks the system's loader."""
    chosen = os.environ.get("HALAY_LIBRARY")
    if chosen:
        return [chosen]
    above = _PACKAGE.parent.parent
    prefix = above.parent / SONAME  # the package is LIBDIR/halay/python/halay there
    return [
        str(_PACKAGE / "lib" / SONAME),
        *([str(prefix)] if prefix.exists() else []),
        str(above / "build" / "lib" / SONAME),
        SONAME,
    ]


def _remedy() -> str:
    if os.environ.get("HALAY_LIBRARY"):
        return f"HALAY_LIBRARY names it: unset it, or set it to the full path of a {SONAME}."
    if not _PACKAGE.is_dir():
        return "No library can be loaded out of an archive: install the wheel by pip."
    return (
        "Build it (cmake --preset release && ninja -C build), or set HALAY_LIBRARY to the "
        "full path of libhalay.so.0."
    )


def _load() -> tuple[Any, str]:
    # NODELETE: the library must outlive the interpreter's modules, whatever order they end in.
    flags = ffi.RTLD_NOW | ffi.RTLD_LOCAL | ffi.RTLD_NODELETE
    tried = []
    for path in _candidates():
        if os.sep in path and not os.path.exists(path):
            tried.append(f"  {path}: no such file")
            continue
        try:
            found = ffi.dlopen(path, flags)
            found.halay_version  # noqa: B018  # another library has none
            return found, path
        except (OSError, AttributeError, ffi.error) as error:
            tried.append(f"  {path}: {error}")
    raise ImportError(
        f"Halay's C library {SONAME} could not be loaded. Looked at:\n"
        + "\n".join(tried)
        + f"\n{_remedy()}"
    )


def _string(text: Any) -> str:
    return str(ffi.string(text).decode("utf-8", "replace"))


lib, library_path = _load()
library_version = _string(lib.halay_version())
if library_version.split(".")[:2] != __version__.split(".")[:2]:
    raise ImportError(
        f"{library_path} is Halay {library_version}, the Python package is {__version__}: "
        "use the library of the same release, or set HALAY_LIBRARY to its path."
    )

_CLASSES: dict[int, type[HalayError]] = {
    lib.HALAY_EMISMATCH: HalayMismatch,
    lib.HALAY_ETIMEOUT: HalayTimeout,
    lib.HALAY_EPEER: HalayPeerLost,
    lib.HALAY_EREVOKED: HalayRevoked,
    lib.HALAY_EBOOT: HalayBootError,
    lib.HALAY_EFORKED: HalayForked,
    lib.HALAY_EOVER: HalayOver,
}


def error(
    code: int,
    verdict: str = "",
    rank: int | None = None,
    host: str | None = None,
    of_job: int | None = None,
) -> HalayError:
    """The exception for a code. The verdict is the library's text for this case, if it has one."""
    general = _string(lib.halay_strerror(code))
    name = general.split(":", 1)[0]
    return _CLASSES.get(code, HalayError)(code, name, verdict or general, rank, host, of_job)


class Place(NamedTuple):
    """Who this process is, where no launcher says so: all ranks meet at rank 0's host:port."""

    rank: int
    size: int
    address: str
    secret: str
    deadline_ns: int = 0  # of the meeting, and of calls; 0: the library's settings


def make_context(place: Place | None = None, share: bool = False) -> Any:
    """A context of this process's job, as halay_context_t *; the caller finalizes it.

    share: one that another library of this process has made (libhalay_mpi), if there is one.
    """
    text = ffi.new("char[]", TEXT_BYTES)
    config = ffi.new("halay_config_t *")
    config.size = ffi.sizeof("halay_config_t")
    config.error, config.error_bytes = text, TEXT_BYTES
    if place is not None:
        given = ffi.new("halay_boot_rank_t *")
        given.size, given.rank, given.nranks = ffi.sizeof(given[0]), place.rank, place.size
        words = [ffi.new("char[]", word.encode()) for word in (place.address, place.secret)]
        given.address, given.secret = words
        config.boot_arg, config.deadline_ns = given, place.deadline_ns
    context = ffi.new("halay_context_t **")
    init = lib.halay_init_shared if share else lib.halay_init
    code = init(config, context)
    if code != 0:
        raise error(code, text_of(text))
    return context[0]


def text_of(buffer: Any) -> str:
    """A char array that the library filled, as str."""
    return _string(buffer)


def verdict_of(comm: Any, code: int) -> str:
    """The library's text for the failure that a call on the communicator has just told of."""
    verdict = ffi.new("halay_verdict_t *")
    verdict.size = ffi.sizeof("halay_verdict_t")
    known = lib.halay_comm_verdict(comm, verdict) == 0 and verdict.code == code
    return text_of(verdict.text) if known else text_of(lib.halay_strerror(code))


def deadline_s() -> float:
    """How long a call may take."""
    try:
        return float(os.environ.get("HALAY_DEADLINE") or 1800)
    except ValueError:
        return 1800.0


CUDA_MEMORY = 1  # HALAY_MEMORY_CUDA of device.h


def cuda_stream(handle: int) -> Any:
    """A stream of CUDA as a halay_stream_t *."""
    found = ffi.new("halay_stream_t *")
    found.size, found.kind = ffi.sizeof("halay_stream_t"), CUDA_MEMORY
    found.handle = ffi.cast("void *", handle)
    return found


@functools.lru_cache(maxsize=4096)
def c_shape(shape: tuple[int, ...]) -> Any:
    """A halay_dims_t; the dimensions for which it has no room are one with the last."""
    most: int = lib.HALAY_DIMS_MAX
    dims = [*shape[: most - 1], math.prod(shape[most - 1 :])] if len(shape) > most else [*shape]
    return ffi.new("halay_dims_t *", (len(dims), dims))
