# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libhalay.so.0, through cffi's ABI mode: no compiler, no header at install time.

Every call into `lib` releases the GIL.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Callable, NamedTuple

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
WAIT_S = 0.1

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

# What handlers of signals have raised while a call of the library waited in the main thread. The
# call ends by it: error() raises it in place of the verdict that the other ranks get.
interrupts: list[BaseException] = []


def _keeping() -> Generator[None, None, None]:
    """Keeps what throw() brings. A function would be interrupted itself, at its first step, by the
    handler of another signal, and what came first would be lost."""
    while True:
        try:
            try:
                while True:
                    yield
            except GeneratorExit:
                return
            except BaseException as raised:
                interrupts.append(raised)
        except BaseException as raised:
            interrupts.append(raised)


_keeper = _keeping()
next(_keeper)


def _asked(_: object) -> int:
    """Called by a wait in the main thread, ten times a second: Python runs handlers here."""
    return 0


try:
    _ask = ffi.callback("int(void *)", _asked, error=1, onerror=_keeper.throw)
except MemoryError:  # a system that forbids it (SELinux): handlers run when the call is over
    _ask = ffi.NULL


def interrupted() -> None:
    """Raises what a handler has raised while a call waited, whose end this is."""
    if interrupts and threading.current_thread() is threading.main_thread():
        first = interrupts[0]
        interrupts.clear()
        try:
            raise first
        finally:
            del first  # its traceback has this frame, which would keep it


def refuse_in_handler(what: str) -> None:
    """Raises if the caller is a handler of a signal that came while a call of this thread waits."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _asked.__code__:
            raise RuntimeError(
                f"{what} by a handler of a signal, while a call of this thread waits: "
                "raise an exception (SystemExit), which ends the call, and do it then"
            )
        frame = frame.f_back


# Whose lines are of no interest to who looks for a call of the program's.
_NOT_THE_PROGRAM = frozenset(
    {"halay", "horovod", "torch", "jax", "jaxlib", "optax", "keras", "tf_keras", "tensorflow"}
)


def program() -> tuple[FrameType | None, int]:
    """The frame of the program that called into this package, if it is on the stack, and the
    stacklevel at which the caller warns it. How many frames are between, torch.compile decides."""
    frame, level = sys._getframe(1), 1
    while frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_PROGRAM:
        if frame.f_back is None:
            return None, level
        frame, level = frame.f_back, level + 1
    return frame, level


_CLASSES: dict[int, type[HalayError]] = {
    lib.HALAY_EMISMATCH: HalayMismatch,
    lib.HALAY_ETIMEOUT: HalayTimeout,
    lib.HALAY_EPEER: HalayPeerLost,
    lib.HALAY_EREVOKED: HalayRevoked,
    lib.HALAY_EBOOT: HalayBootError,
    lib.HALAY_EFORKED: HalayForked,
    lib.HALAY_EOVER: HalayOver,
}


# What the library's texts say to programs in C.
_WORDS = {
    "halay_comm_shrink, too (under torch.distributed halay.distributed.shrink())": (
        "halay.distributed.shrink(), too"
    ),
    "halay_comm_shrink; in Python ": "",
    "pass HALAY_IN_PLACE as input instead": "give one tensor as both, or two that do not overlap",
}
_NAMES = {
    "halay_comm_shrink": "halay.distributed.shrink()",
    "halay_comm_agree": "halay.distributed.agree()",
    "halay_init": "init()",
    "halay_finalize": "shutdown()",
}
# Not in what the program has named: a tensor, which is quoted, or a file.
_CALL = re.compile(r"(?<![\w.'/-])(halay_[a-z_]+)(?:\(\))?(?![\w'/-]|\.\w)")


def _in_python(text: str) -> str:
    """A text of the library, with calls by their names in Python."""
    for in_c, here in _WORDS.items():
        text = text.replace(in_c, here)

    def renamed(found: re.Match[str]) -> str:
        name = found[1]
        return _NAMES.get(name, found[0][6:] if hasattr(lib, name) else found[0])

    return _CALL.sub(renamed, text)


def error(
    code: int,
    verdict: str = "",
    rank: int | None = None,
    host: str | None = None,
    of_job: int | None = None,
) -> HalayError:
    """The exception for a code. The verdict is the library's text for this case, if it has one.
    Raises what a handler of a signal has raised, where that is why the call has failed."""
    interrupted()
    return verdict_error(code, verdict, rank, host, of_job)


def verdict_error(
    code: int,
    verdict: str = "",
    rank: int | None = None,
    host: str | None = None,
    of_job: int | None = None,
) -> HalayError:
    """As error(), which raises nothing."""
    general = _string(lib.halay_strerror(code))
    name, text = general.split(":", 1)[0], verdict or general
    text = _in_python(text)
    return _CLASSES.get(code, HalayError)(code, name, text, rank, host, of_job)


class Place(NamedTuple):
    """Who this process is, where no launcher says so: all ranks meet at rank 0's host:port."""

    rank: int
    size: int
    address: str
    secret: str
    deadline_ns: int = 0  # of the meeting, and of calls; 0: the library's settings
    allgather: Callable[[bytes], Sequence[bytes]] | None = None  # says the address instead


class _Gathering:
    """A program's allgather, called once, by a thread of its own: so it may block, and the start
    has its deadline all the same."""

    def __init__(self, place: Place) -> None:
        self._call, self._size = place.allgather, place.size
        self.failure: BaseException | None = None
        self._answer: bytes | None = None
        self.begin = ffi.callback(
            "int(void *, const void *, void *, size_t, void **)", self._begin, error=1
        )
        self.test = ffi.callback("int(void *)", self._test, error=-1)
        self.free = ffi.callback("int(void *)", lambda _: 0)

    def _begin(self, _: Any, given: Any, out: Any, count: int, request: Any) -> int:
        record, self._out = bytes(ffi.buffer(given, count)), out
        request[0] = given  # any but NULL
        threading.Thread(
            target=self._gather, args=(record,), name="halay allgather", daemon=True
        ).start()
        return 0

    def _gather(self, record: bytes) -> None:
        try:
            assert self._call is not None
            parts = [bytes(part) for part in self._call(record)]
            if [len(part) for part in parts] != [len(record)] * self._size:
                raise ValueError(
                    f"allgather gave {len(parts)} parts of {sorted({*map(len, parts)})} bytes: it "
                    f"has to give those of all {self._size} ranks, each {len(record)} bytes long"
                )
            self._answer = b"".join(parts)
        except BaseException as failure:
            self.failure = failure

    def _test(self, _: Any) -> int:
        """In the thread that has begun, which also ends it: nobody writes to out behind its end."""
        if self._answer is None:
            return 0 if self.failure is None else -1
        ffi.memmove(self._out, self._answer, len(self._answer))
        return 1


def make_context(place: Place | None = None, share: bool = False) -> Any:
    """A context of this process's job, as halay_context_t *; the caller finalizes it.

    share: one that another library of this process has made (libhalay_mpi), if there is one.
    """
    text, words = ffi.new("char[]", TEXT_BYTES), []
    gathering: _Gathering | None = None
    config = ffi.new("halay_config_t *")
    config.size = ffi.sizeof("halay_config_t")
    config.error, config.error_bytes = text, TEXT_BYTES
    if place is not None:
        given = ffi.new("halay_boot_rank_t *")
        given.size, given.rank, given.nranks = ffi.sizeof(given[0]), place.rank, place.size
        words = [given, *(ffi.new("char[]", word.encode()) for word in place[2:4])]
        given.address, given.secret = words[1:]
        config.boot_arg, config.deadline_ns = given, place.deadline_ns
        if place.allgather is not None:
            gathering = _Gathering(place)
            given.address = given.secret = ffi.NULL
            given.allgather, given.test = gathering.begin, gathering.test
            given.free = gathering.free
            words.append(gathering)
    context = ffi.new("halay_context_t **")
    init = lib.halay_init_shared if share else lib.halay_init
    held = (text, words)  # the call may go on when this one has ended
    code = _beside(
        lambda: int(init(config, context)), lambda: held and lib.halay_finalize(context[0])
    )
    if code != 0:
        raise error(code, text_of(text)) from (gathering.failure if gathering else None)
    if _ask != ffi.NULL:
        lib.halay_local_on_wait(context[0], _ask, ffi.NULL)
    return context[0]


def _beside(call: Callable[[], int], undo: Callable[[], object]) -> int:
    """What call() gives. In the main thread handlers of signals run meanwhile; if one raises, that
    ends this wait, and what the call brings later is undone."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    codes: list[int] = []
    given_up, ended = threading.Lock(), threading.Event()

    def run() -> None:
        code = call()
        codes.append(code)
        ended.set()
        if not given_up.acquire(blocking=False) and code == 0:
            undo()

    threading.Thread(target=run, name="halay init", daemon=True).start()
    try:
        while not ended.wait(WAIT_S):
            pass
    except BaseException:
        if not given_up.acquire(blocking=False) and codes[0] == 0:
            undo()
        raise
    return codes[0]


def address_of(view: memoryview) -> int:
    """Where its bytes are. The view keeps them there, and nothing keeps the view: a view in use
    that Python's collector clears ends the process."""
    with ffi.from_buffer(view) as pointer:
        return int(ffi.cast("uintptr_t", pointer))


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
