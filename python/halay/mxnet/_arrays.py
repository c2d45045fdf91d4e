# SPDX-License-Identifier: Apache-2.0
"""NDArrays as memory, and handed to the session. A call first waits for what MXNet still has to do
with them; then they lie still until the call is over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Callable

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from .. import _session
from .._core import c_shape, ffi, lib
from .._process_sets import ProcessSet, members_of, root_among
from .._reductions import C_OPS, OP_NAMES, Adasum, Average
from .._session import Members

TYPES = {
    name: getattr(lib, f"HALAY_{name.upper()}")
    for name in ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64")
}


def _described(array: Any, kind: str, name: str | None) -> str:
    named = "" if name is None else f" {name!r}"
    return f"{kind}{named}: NDArray {tuple(array.shape)} of {np.dtype(array.dtype).name}"


def _refuse_others(array: Any, kind: str) -> None:
    if not isinstance(array, mx.nd.NDArray):
        raise TypeError(f"{kind}: needs an NDArray, not {type(array).__name__}")


def empty(like: Any, kind: str, rows: int | None = None) -> Any:
    """An NDArray as this one, of so many rows, for its result."""
    _refuse_others(like, kind)
    shape = like.shape if rows is None else (rows, *like.shape[1:])
    return mx.nd.empty(shape, like.context, like.dtype)


def seen(array: Any, kind: str, name: str | None) -> Any:
    """A NumPy array on the same memory, which has to live as long as the NDArray."""
    _refuse_others(array, kind)
    what = _described(array, kind, name)
    if array.stype != "default":
        raise ValueError(f"{what}: it is sparse ({array.stype}); use array.tostype('default')")
    if not array.context.device_type.startswith("cpu"):
        raise ValueError(f"{what}: it is on {array.context}; use array.as_in_context(mx.cpu())")
    if np.dtype(array.dtype).name not in TYPES:
        raise TypeError(f"{what}: this type is none of {', '.join(TYPES)}")
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))  # nobody reads it or writes to it
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    if array.size == 0 or not pointer.value:
        return np.empty(array.shape, array.dtype)
    nbytes = array.size * np.dtype(array.dtype).itemsize
    memory = (ctypes.c_char * nbytes).from_address(pointer.value)
    return np.frombuffer(memory, array.dtype).reshape(array.shape)


def made(values: Any, like: Any) -> Any:
    """An NDArray with these values, where the other one is."""
    return mx.nd.array(values, ctx=like.context, dtype=values.dtype)


def _address(view: Any) -> Any:
    return ffi.cast("void *", view.ctypes.data) if view.size else ffi.new("char[]", 16)


class Reduction:
    """An operation, its scales, and among whom.

    Average is the sum times 1/size, as in Horovod; integers without scales are divided, and
    truncate toward zero. Scaled integers are so in float64, and truncated.
    """

    def __init__(self, op: int, prescale: float, postscale: float, among: ProcessSet) -> None:
        if op == Adasum:
            raise ValueError("op Adasum is not there for MXNet, as in Horovod")
        if (prescale, postscale) != (1.0, 1.0) and op not in (Average, 1):
            raise ValueError(f"scale factors need op Average or Sum, not {OP_NAMES[op]}")
        self.op, self.prescale, self.postscale, self.among = op, prescale, postscale, among

    def submit(self, call: Any, kind: str, name: str | None, given: Any, out: Any) -> int:
        """Reduces an NDArray into another one, which may be the same: a handle, whose result is
        that one."""
        members = members_of(self.among)
        source, target = seen(given, kind, name), seen(out, kind, name)
        inexact = source.dtype.kind == "f"
        c_op, pre, post, after = self._of(members, inexact)
        if not inexact and pre != 1.0:
            source, pre = (source.astype("float64") * pre).astype(source.dtype), 1.0
        type_, shape = TYPES[source.dtype.name], c_shape(source.shape)
        if not lib.halay_op_takes(c_op, type_):
            what = _described(given, kind, name)
            raise TypeError(f"{what}: op {OP_NAMES[self.op]} does not take this type")

        def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
            to, rest = _address(target), (shape, type_, c_op, pre, post, ticket)
            return int(call(trainer, encoded, _address(source), to, *rest))

        def finish(_members: Members, _ticket: int) -> Any:
            if after != 1.0:
                target[...] = (target.astype("float64") * after).astype(target.dtype)
            return out

        keep = (given, out, source)
        return _session.session().submit(kind, name, start, keep, finish, members)

    def _of(self, members: Members, inexact: bool) -> tuple[int, float, float, float]:
        """Operation, the trainer's scales, and by what its result is multiplied."""
        pre, post = self.prescale, self.postscale
        if self.op != Average:
            return (C_OPS[self.op], pre, post, 1.0) if inexact else (C_OPS[self.op], pre, 1.0, post)
        if inexact:
            return lib.HALAY_SUM, pre, post / members.size, 1.0
        if (pre, post) == (1.0, 1.0):
            return lib.HALAY_AVERAGE, 1.0, 1.0, 1.0
        return lib.HALAY_SUM, pre, 1.0, post / members.size


def submit_gather(
    kind: str,
    array: Any,
    name: str | None,
    among: ProcessSet,
    splits: Sequence[int] | None,
    then: Callable[[Any, list[int]], Any],
) -> int:
    """An allgather, or with splits an alltoall. then: of the rows, and how many are each rank's."""
    members, view = members_of(among), seen(array, kind, name)
    if view.ndim == 0:
        raise ValueError(f"{_described(array, kind, name)}: a scalar has no rows")
    type_, shape, rows_of = TYPES[view.dtype.name], c_shape(view.shape), view.shape[1:]

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        if splits is None:
            call = lib.halay_trainer_allgather_shaped
            return int(call(trainer, encoded, _address(view), shape, type_, ticket))
        call = lib.halay_trainer_alltoall
        return int(call(trainer, encoded, _address(view), splits, shape, type_, ticket))

    def finish(of: Members, ticket: int) -> Any:
        data, count, rows = of.gathered(ticket)
        found = np.empty((sum(rows), *rows_of), view.dtype)
        assert found.size == count
        if count > 0:
            ffi.memmove(_address(found), data, found.nbytes)
        return then(made(found, array), rows)

    return _session.session().submit(kind, name, start, array, finish, members)


def submit_broadcast(array: Any, root_rank: int, name: str | None, among: ProcessSet) -> int:
    """Overwrites the NDArray. root_rank is a rank of the job, also in a process set."""
    members, view = members_of(among), seen(array, "broadcast", name)
    root = root_among(members, root_rank, _described(array, "broadcast", name))
    type_, shape = TYPES[view.dtype.name], c_shape(view.shape)

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        call = lib.halay_trainer_broadcast_shaped
        return int(call(trainer, encoded, _address(view), shape, type_, root, ticket))

    of = _session.session()
    return of.submit("broadcast", name, start, array, lambda *_: array, members)
