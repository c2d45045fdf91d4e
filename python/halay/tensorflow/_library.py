# SPDX-License-Identifier: Apache-2.0
"""Loads libhalay_tensorflow.so into TensorFlow; tells it which job and process sets there are."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import tensorflow as tf

from .. import _session
from .._core import error, ffi, interrupted, interrupts, library_path, text_of
from .._session import Members, Session

NAME = "libhalay_tensorflow.so"
WAIT = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "join")


def _path() -> str:
    """Beside libhalay.so.0; if the system's loader found that, it is to find this one, too."""
    if os.sep not in library_path:
        return NAME
    # A link to the library of a build tree leads to where the other one is.
    places = [Path(library_path).parent, Path(library_path).resolve().parent]
    for place in places:
        if (place / NAME).exists():
            return str(place / NAME)
    raise ImportError(
        f"Halay's operations for TensorFlow, {NAME}, are not beside {library_path}: use the two of "
        "one build"
    )


def _interruptible(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Called eagerly it waits in this thread, where handlers of signals run meanwhile: what one
    raises is raised here, in place of the error by which TensorFlow ends the operation."""

    def call(*inputs: Any, **attributes: Any) -> Any:
        try:
            return operation(*inputs, **attributes)
        finally:
            if interrupts:
                interrupted()

    return call


def _load() -> tuple[Any, Any]:
    """TensorFlow's functions for the operations, and the library as Python calls it."""
    path = _path()
    found = tf.load_op_library(path)
    library = ffi.dlopen(path, ffi.RTLD_NOW | ffi.RTLD_LOCAL | ffi.RTLD_NODELETE)
    failure = library.halay_tf_failure()
    if failure != ffi.NULL:
        raise ImportError(f"TensorFlow {tf.__version__}: {text_of(failure)}")
    if not hasattr(found, "halay_allreduce"):
        raise ImportError(f"{path} was loaded before TensorFlow was there to take its operations")
    wait = {f"halay_{kind}": _interruptible(getattr(found, f"halay_{kind}")) for kind in WAIT}
    return SimpleNamespace(halay_ask=found.halay_ask, **wait), library


operations, _library = _load()


def tell(of: Session | None = None, without: Members | None = None) -> None:
    """Makes the operations know the process sets of the session as they are now."""
    session = of if of is not None else _session.session()
    known = [members for members in session.members.values() if members is not without]
    sets, keep = ffi.new("halay_tf_set_t[]", len(known)), []
    for slot, members in zip(sets, known):
        ranks = ffi.new("int[]", members.ranks)
        keep.append(ranks)
        slot.number, slot.trainer, slot.nranks = members.number, members.trainer, members.size
        slot.rank = -1 if members.rank is None else members.rank
        slot.ranks = ranks
    job = ffi.new("halay_tf_job_t *")
    job.rank, job.size = session.rank, session.size
    job.local_rank, job.local_size = session.local_rank, session.local_size
    job.nsets, job.sets = len(known), sets
    code = _library.halay_tf_open(job)
    if code != 0:
        raise error(code, rank=session.rank, host=session.host)


def _of_trainer(members: Members) -> Callable[[], None]:
    def end() -> None:
        if members.number == 0 or _session.current() is None:  # all of them go
            _library.halay_tf_close()
        else:
            tell(without=members)

    return end


_session.at_open(tell)
_session.at_change(tell)
_session.at_trainer(_of_trainer)


def counters() -> dict[str, int]:
    """How many operations ended in another thread, and in the caller's."""
    found = ffi.new("halay_tf_counters_t *")
    found.size = ffi.sizeof("halay_tf_counters_t")
    _library.halay_tf_counters(found)
    return {name: int(getattr(found, name)) for name in ("later", "at_once")}
