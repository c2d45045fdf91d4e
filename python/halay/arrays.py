# SPDX-License-Identifier: Apache-2.0
"""Collectives on arrays of any library: NumPy, CuPy, JAX, Numba, torch. No framework is needed::

    import halay.arrays as ha
    ha.init()
    ha.allreduce(gradient, op="average")  # in place
    ha.allgather(rows, out=table)

An array is what has a buffer (NumPy's, bytearray), __dlpack__, or __cuda_array_interface__: in
memory of the host or of a GPU, the same on all ranks, contiguous in C's order. It is used where it
lies. What stands in the stream that a GPU's array comes with is waited for; when a call returns,
its result is there for all streams. Arrays that may not be written to, JAX's for one, can be input.

All ranks make the same calls in the same order, from one thread at a time. A call with an argument
that is wrong on one rank fails on all ranks, and the next call is good again.
"""

from __future__ import annotations

import operator
from typing import Any, Callable

from . import _session
from ._arrays import Seen, seen
from ._core import cuda_stream, deadline_s, error, ffi, lib, text_of, verdict_of
from ._session import Session
from .errors import HalayError

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "init",
    "rank",
    "reduce_scatter",
    "shutdown",
    "size",
]

_OPS: dict[str, int] = {text_of(lib.halay_op_name(op)): op for op in range(lib.HALAY_BXOR + 1)}
_IN_PLACE = ffi.cast("void *", -1)
# Makes the call in C, once its arguments are known to be right.
_Call = Callable[[Any], int]


def init() -> None:
    """Joins the job that the launcher started; alone, a job of one rank. Again: does nothing."""
    _session.init()


def shutdown() -> None:
    """Leaves the job. init() may follow."""
    _session.shutdown()


def rank() -> int:
    """This process's number in the job, from 0."""
    return _session.session().rank


def size() -> int:
    """How many processes the job has."""
    return _session.session().size


def _refuse(of: Session, kind: str, failure: Exception) -> None:
    """Has the others' call fail, with this rank's reason."""
    code, text = lib.HALAY_EINVAL, str(failure)
    if isinstance(failure, HalayError):
        code, text = failure.code, failure.verdict
    said = (text if text.startswith(kind) else f"{kind}: {text}").encode()[:400]
    request = ffi.new("halay_request_t **")
    if lib.halay_local_refuse(of.members[0].comm, code, said, request) == 0:
        lib.halay_request_wait(request[0])


def _run(kind: str, prepare: Callable[[Session], _Call]) -> None:
    of = _session.session()
    try:
        call = prepare(of)
    except Exception as failure:
        _refuse(of, kind, failure)
        raise
    comm = of.members[0].comm
    code = call(comm)
    if code != 0:
        raise error(code, f"{kind}: {verdict_of(comm, code)}", of.rank, of.host)


def _seen(of: Session, kind: str, label: str, array: object, written: bool) -> Seen:
    """The array, with its values there."""
    try:
        found = seen(array)
        if written and not found.writable:
            raise ValueError("it may not be written to, or DLPack would give a copy of it")
    except (TypeError, ValueError, BufferError) as failure:
        named = f"{kind}: {label} ({type(array).__name__}): {failure}"
        raise (TypeError if isinstance(failure, TypeError) else ValueError)(named) from None
    if found.stream is not None and found.elements > 0:
        _reach(of, f"{kind}: {label} ({type(array).__name__})", found)
    return found


def _reach(of: Session, what: str, array: Seen) -> None:
    """Waits for the stream, but not as long as the other ranks wait for this one."""
    assert array.stream is not None
    patience_ns = int(0.75 * deadline_s() * 1e9)
    # It is asked first: so the device is known, also if nothing was called there yet. Memory that
    # cannot be used is the call's to refuse.
    if lib.halay_mem_kind(of.context, array.pointer, 0, ffi.new("uint32_t *")) != 0:
        return
    try:
        of.reach(cuda_stream(array.stream), patience_ns)
    except HalayError as failure:
        text = f"{what}: the stream in which its values come: {failure.verdict}"
        raise error(failure.code, text, of.rank, of.host) from None


def _pair(
    of: Session, kind: str, array: object, out: object, parts: tuple[int, int] = (1, 1)
) -> tuple[Seen, Seen, Any]:
    """Input and output, and the input's address for C. parts: how many equal ones each has."""
    in_place = out is array
    given = _seen(of, kind, "the array", array, in_place)
    taken = given if in_place else _seen(of, kind, "out", out, True)
    if given.type != taken.type:
        raise TypeError(
            f"{kind}: the array is of {_name(given.type)}, out of {_name(taken.type)}: "
            "they have to be of one type"
        )
    if given.elements * parts[1] != taken.elements * parts[0]:
        raise ValueError(
            f"{kind}: on {of.size} ranks an array of {given.elements} elements needs an out of "
            f"{given.elements * parts[1] / parts[0]:g}, not {taken.elements}"
        )
    same = given.address == taken.address and given.elements == taken.elements
    return given, taken, _IN_PLACE if same else given.pointer


def _name(type_: int) -> str:
    return text_of(lib.halay_type_name(type_))


def _op(kind: str, op: str, type_: int) -> int:
    found = _OPS.get(op)
    if found is None:
        raise ValueError(f"{kind}: op {op!r} is no reduction; there are {', '.join(_OPS)}")
    if not lib.halay_op_takes(found, type_):
        raise TypeError(f"{kind}: op {op!r} does not take {_name(type_)}")
    return found


def allreduce(array: Any, out: Any = None, op: str = "sum") -> Any:
    """The reduction of all ranks' arrays, in out, or in place if that is left out. Returns it.

    op: sum, prod, min, max, average, land, lor, lxor, band, bor or bxor.
    """

    target = array if out is None else out

    def prepare(of: Session) -> _Call:
        given, taken, source = _pair(of, "allreduce", array, target)
        c_op = _op("allreduce", op, given.type)
        return lambda comm: int(
            lib.halay_allreduce(source, taken.pointer, taken.elements, given.type, c_op, comm)
        )

    _run("allreduce", prepare)
    return target


def broadcast(array: Any, root: int = 0) -> Any:
    """Overwrites all ranks' arrays with that of rank root. Returns it."""

    def prepare(of: Session) -> _Call:
        at = operator.index(root)
        found = _seen(of, "broadcast", "the array", array, of.rank != at)
        return lambda comm: int(
            lib.halay_broadcast(found.pointer, found.elements, found.type, at, comm)
        )

    _run("broadcast", prepare)
    return array


def allgather(array: Any, out: Any) -> Any:
    """The arrays of all ranks, as long as each other, one after the other in out. Returns it."""

    def prepare(of: Session) -> _Call:
        given, taken, source = _pair(of, "allgather", array, out, (1, of.size))
        return lambda comm: int(
            lib.halay_allgather(source, taken.pointer, given.elements, given.type, comm)
        )

    _run("allgather", prepare)
    return out


def reduce_scatter(array: Any, out: Any, op: str = "sum") -> Any:
    """This rank's part of the reduction of all ranks' arrays, as long as the others'. Returns out.

    op: as of allreduce().
    """

    def prepare(of: Session) -> _Call:
        given, taken, source = _pair(of, "reduce_scatter", array, out, (of.size, 1))
        c_op = _op("reduce_scatter", op, given.type)
        return lambda comm: int(
            lib.halay_reduce_scatter(source, taken.pointer, taken.elements, given.type, c_op, comm)
        )

    _run("reduce_scatter", prepare)
    return out


def alltoall(array: Any, out: Any) -> Any:
    """Part r of the array goes to rank r; out gets what all ranks had for this one. Returns it."""

    def prepare(of: Session) -> _Call:
        given, taken, source = _pair(of, "alltoall", array, out)
        each, rest = divmod(given.elements, of.size)
        if rest:
            raise ValueError(
                f"alltoall: {given.elements} elements cannot be dealt out evenly to {of.size} ranks"
            )
        return lambda comm: int(lib.halay_alltoall(source, taken.pointer, each, given.type, comm))

    _run("alltoall", prepare)
    return out


def barrier() -> None:
    """Returns when all ranks have called it."""
    _run("barrier", lambda of: lambda comm: int(lib.halay_barrier(comm)))
