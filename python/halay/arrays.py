# SPDX-License-Identifier: Apache-2.0
"""Collectives on arrays of any library: NumPy, CuPy, JAX, Numba, torch. No framework is needed::

    import halay.arrays as ha
    ha.init()
    ha.allreduce(gradient, op="average")  # in place
    ha.allgather(rows, out=table)

An array is what has a buffer (NumPy's, bytearray), __dlpack__, or __cuda_array_interface__: in
memory of the host or of a GPU, the same on all ranks, contiguous in C's order. It is used where it
lies. A call waits for what stands in the stream that a GPU's array comes with; when a call returns,
its result is there for all streams. Arrays that may not be written to, JAX's for one, can be input.

All ranks make the same calls in the same order, from one thread at a time. A call with an argument
that is wrong on one rank fails on all ranks, and the next call is good again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

from . import _session
from ._arrays import Seen, seen
from ._core import cuda_stream, deadline_s, error, ffi, interrupted, lib, text_of, verdict_of
from ._process_sets import whole
from ._session import Session
from .errors import HalayError

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "exscan",
    "gather",
    "init",
    "rank",
    "recv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "send",
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
        interrupted()


def _run(kind: str, prepare: Callable[[Session], _Call]) -> None:
    of = _session.session()
    comm = of.members[0].comm
    try:
        code = prepare(of)(comm)
    except OverflowError as failure:  # by cffi: C is not called then
        refused = ValueError(f"{kind}: {failure}")
        _refuse(of, kind, refused)
        raise refused from None
    except Exception as failure:
        _refuse(of, kind, failure)
        raise
    interrupted()
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
    timeout_ns = int(0.75 * deadline_s() * 1e9)
    # It is asked first: so the device is known, also if nothing was called there yet. Memory that
    # cannot be used is the call's to refuse.
    if lib.halay_mem_kind(of.context, array.pointer, 0, ffi.new("uint32_t *")) != 0:
        return
    try:
        of.reach(cuda_stream(array.stream), timeout_ns)
    except HalayError as failure:
        text = f"{what}: the stream in which its values come: {failure.verdict}"
        raise error(failure.code, text, of.rank, of.host) from None


def _pair(
    of: Session,
    kind: str,
    array: object,
    out: object,
    parts: tuple[int, int] = (1, 1),
    lengths: tuple[int, int] | None = None,
) -> tuple[Seen, Seen, Any]:
    """Input and output, and the input's address for C. parts: how many equal ones each has;
    lengths: or how many elements."""
    in_place = out is array
    given = _seen(of, kind, "the array", array, in_place)
    taken = given if in_place else _seen(of, kind, "out", out, True)
    if given.type != taken.type:
        raise TypeError(
            f"{kind}: the array is of {_name(given.type)}, out of {_name(taken.type)}: "
            "they have to be of one type"
        )
    if lengths is not None:
        _long(kind, "the array", given, lengths[0])
        _long(kind, "out", taken, lengths[1])
    elif given.elements * parts[1] != taken.elements * parts[0]:
        raise ValueError(
            f"{kind}: on {of.size} ranks an array of {given.elements} elements needs an out of "
            f"{given.elements * parts[1] / parts[0]:g}, not {taken.elements}"
        )
    same = given.address == taken.address and given.elements == taken.elements
    if not same and given.address < taken.end and taken.address < given.end:
        raise ValueError(
            f"{kind}: the array and out overlap: give out memory of its own, or, for a result in "
            "place, the array itself"
        )
    return given, taken, _IN_PLACE if same else given.pointer


def _long(kind: str, label: str, found: Seen, elements: int) -> None:
    if found.elements != elements:
        raise ValueError(f"{kind}: {label} has {found.elements} elements, not {elements}")


def _counts(of: Session, kind: str, label: str, counts: Iterable[int]) -> list[int]:
    found = [whole(count, kind, f"each of {label}") for count in counts]
    if len(found) != of.size or min(found) < 0:
        raise ValueError(f"{kind}: {label} {found} are not {of.size} numbers of elements")
    return found


def _name(type_: int) -> str:
    return text_of(lib.halay_type_name(type_))


def _op(kind: str, op: str, type_: int) -> int:
    found = _OPS.get(op) if isinstance(op, str) else None
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
        at = whole(root, "broadcast", "root")
        found = _seen(of, "broadcast", "the array", array, of.rank != at)
        return lambda comm: int(
            lib.halay_broadcast(found.pointer, found.elements, found.type, at, comm)
        )

    _run("broadcast", prepare)
    return array


def reduce(array: Any, out: Any = None, op: str = "sum", root: int = 0) -> Any:
    """As allreduce(), on rank root alone. Others leave their arrays, and out, as they are. Returns
    the result on the root, None elsewhere."""

    def prepare(of: Session) -> _Call:
        at = whole(root, "reduce", "root")
        if of.rank == at:
            given, taken, source = _pair(of, "reduce", array, array if out is None else out)
            into = taken.pointer
        else:
            given = _seen(of, "reduce", "the array", array, False)
            source, into = given.pointer, ffi.NULL
        c_op = _op("reduce", op, given.type)
        return lambda comm: int(
            lib.halay_reduce(source, into, given.elements, given.type, c_op, at, comm)
        )

    _run("reduce", prepare)
    return (array if out is None else out) if rank() == root else None


def _scan(kind: str, function: Any, array: Any, out: Any, op: str) -> Any:
    target = array if out is None else out

    def prepare(of: Session) -> _Call:
        given, taken, source = _pair(of, kind, array, target)
        c_op = _op(kind, op, given.type)
        return lambda comm: int(
            function(source, taken.pointer, taken.elements, given.type, c_op, comm)
        )

    _run(kind, prepare)
    return target


def scan(array: Any, out: Any = None, op: str = "sum") -> Any:
    """The reduction of the arrays of ranks 0 to this one, in out, or in place. Returns it."""
    return _scan("scan", lib.halay_scan, array, out, op)


def exscan(array: Any, out: Any = None, op: str = "sum") -> Any:
    """The reduction of the arrays of the ranks before this one, in out, or in place. Returns it.
    Rank 0's result is left as it is."""
    return _scan("exscan", lib.halay_exscan, array, out, op)


def allgather(array: Any, out: Any, counts: Iterable[int] | None = None) -> Any:
    """The arrays of all ranks, one after the other in out. Returns it.

    counts: how many elements each rank's array has, the same list on all ranks; without it they
    are as long as each other.
    """

    def prepare(of: Session) -> _Call:
        if counts is None:
            given, taken, source = _pair(of, "allgather", array, out, (1, of.size))
            return lambda comm: int(
                lib.halay_allgather(source, taken.pointer, given.elements, given.type, comm)
            )
        each = _counts(of, "allgather", "counts", counts)
        lengths = (each[of.rank], sum(each))
        given, taken, source = _pair(of, "allgather", array, out, lengths=lengths)
        c_each = ffi.new("size_t[]", each)
        return lambda comm: int(
            lib.halay_allgatherv(source, taken.pointer, c_each, ffi.NULL, given.type, comm)
        )

    _run("allgather", prepare)
    return out


def gather(array: Any, out: Any = None, root: int = 0, counts: Iterable[int] | None = None) -> Any:
    """The arrays of all ranks, one after the other in out of rank root; elsewhere out is not
    looked at. Returns out on the root, None elsewhere. counts: as of allgather()."""

    def prepare(of: Session) -> _Call:
        at = whole(root, "gather", "root")
        given = _seen(of, "gather", "the array", array, False)
        each = _counts(of, "gather", "counts", counts) if counts is not None else None
        into = ffi.NULL
        if each is not None:
            _long("gather", "the array", given, each[of.rank])
        if of.rank == at:
            lengths = None if each is None else (each[at], sum(each))
            _, taken, _ = _pair(of, "gather", array, out, (1, of.size), lengths)
            into = taken.pointer
        if each is None:
            return lambda comm: int(
                lib.halay_gather(given.pointer, into, given.elements, given.type, at, comm)
            )
        c_each, none = ffi.new("size_t[]", each), ffi.NULL
        return lambda comm: int(
            lib.halay_gatherv(given.pointer, into, c_each, none, given.type, at, comm)
        )

    _run("gather", prepare)
    return out if rank() == root else None


def scatter(array: Any, out: Any, root: int = 0, counts: Iterable[int] | None = None) -> Any:
    """Each rank's part of the array of rank root, in out; elsewhere the array is not looked at.
    Returns out. counts: how many elements each rank gets, the same list on all ranks; without it
    all get as many."""

    def prepare(of: Session) -> _Call:
        at = whole(root, "scatter", "root")
        each = _counts(of, "scatter", "counts", counts) if counts is not None else None
        if of.rank == at:
            lengths = None if each is None else (sum(each), each[at])
            given, taken, _ = _pair(of, "scatter", array, out, (of.size, 1), lengths)
            source = given.pointer
        else:
            taken, source = _seen(of, "scatter", "out", out, True), ffi.NULL
        into, n, kind = taken.pointer, taken.elements, taken.type
        if each is None:
            return lambda comm: int(lib.halay_scatter(source, into, n, kind, at, comm))
        _long("scatter", "out", taken, each[of.rank])
        c_each, none = ffi.new("size_t[]", each), ffi.NULL
        return lambda comm: int(lib.halay_scatterv(source, into, c_each, none, kind, at, comm))

    _run("scatter", prepare)
    return out


def reduce_scatter(
    array: Any, out: Any, op: str = "sum", counts: Iterable[int] | None = None
) -> Any:
    """This rank's part of the reduction of all ranks' arrays. Returns out.

    op: as of allreduce(). counts: how many elements each rank gets, the same list on all ranks;
    without it all get as many.
    """

    def prepare(of: Session) -> _Call:
        if counts is None:
            given, taken, source = _pair(of, "reduce_scatter", array, out, (of.size, 1))
            c_op, n = _op("reduce_scatter", op, given.type), taken.elements
            return lambda comm: int(
                lib.halay_reduce_scatter(source, taken.pointer, n, given.type, c_op, comm)
            )
        each = _counts(of, "reduce_scatter", "counts", counts)
        lengths = (sum(each), each[of.rank])
        given, taken, source = _pair(of, "reduce_scatter", array, out, lengths=lengths)
        c_op, c_each = _op("reduce_scatter", op, given.type), ffi.new("size_t[]", each)
        return lambda comm: int(
            lib.halay_reduce_scatterv(source, taken.pointer, c_each, given.type, c_op, comm)
        )

    _run("reduce_scatter", prepare)
    return out


def alltoall(
    array: Any,
    out: Any,
    sent: Iterable[int] | None = None,
    received: Iterable[int] | None = None,
) -> Any:
    """Part r of the array goes to rank r; out gets what all ranks had for this one. Returns it.

    sent, received: how many elements go to, and come from, each rank; without them all as many.
    """

    def prepare(of: Session) -> _Call:
        if sent is not None and received is not None:
            out_of = _counts(of, "alltoall", "sent", sent)
            into = _counts(of, "alltoall", "received", received)
            lengths = (sum(out_of), sum(into))
            given, taken, source = _pair(of, "alltoall", array, out, lengths=lengths)
            c_out, c_into, none = ffi.new("size_t[]", out_of), ffi.new("size_t[]", into), ffi.NULL
            at, kind = taken.pointer, given.type
            return lambda comm: int(
                lib.halay_alltoallv(source, c_out, none, at, c_into, none, kind, comm)
            )
        if sent is not None or received is not None:
            raise ValueError("alltoall: sent and received are given both, or neither")
        given, taken, source = _pair(of, "alltoall", array, out)
        each, rest = divmod(given.elements, of.size)
        if rest:
            raise ValueError(
                f"alltoall: {given.elements} elements cannot be dealt out evenly to {of.size} ranks"
            )
        return lambda comm: int(lib.halay_alltoall(source, taken.pointer, each, given.type, comm))

    _run("alltoall", prepare)
    return out


def _between(kind: str, function: Any, array: Any, peer: int, written: bool) -> None:
    """Two ranks call, so the others do not hear what is wrong."""
    of = _session.session()
    found = _seen(of, kind, "the array", array, written)
    comm, other = of.members[0].comm, whole(peer, kind, "the other rank")
    if not 0 <= other < of.size or other == of.rank:
        raise ValueError(f"{kind}: rank {other} is not another rank of {of.size}")
    code = function(found.pointer, found.elements, found.type, other, comm)
    if code != 0:
        raise error(code, f"{kind}: {verdict_of(comm, code)}", of.rank, of.host)


def send(array: Any, to: int) -> None:
    """To rank `to`, which calls recv() with an array of as many elements of this type. Returns when
    it has called. Between two ranks they meet in the order of the calls."""
    _between("send", lib.halay_send, array, to, False)


def recv(array: Any, source: int) -> Any:
    """Overwrites the array with what rank `source` sends. Returns it."""
    _between("recv", lib.halay_recv, array, source, True)
    return array


def barrier() -> None:
    """Returns when all ranks have called it."""
    _run("barrier", lambda of: lambda comm: int(lib.halay_barrier(comm)))
