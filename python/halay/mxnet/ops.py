# SPDX-License-Identifier: Apache-2.0
"""Horovod's collectives for MXNet. A call returns when its result is there; Horovod's priority=
changes nothing. All ranks make calls in one order: name= lets a grouped call's members pass others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np

from .. import _session
from .._core import lib
from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Average, Sum, choose_op
from ..errors import InvalidArgument
from ._arrays import Reduction, empty, seen, submit_broadcast, submit_gather


def _names(name: str | None, count: int) -> list[str | None]:
    return [None if name is None else f"{name}.{i}" for i in range(count)]


def _all(kind: str, names: list[str | None], start: Any, among: ProcessSet) -> list[Any]:
    """Results of what start(i) submits, the i-th of these names."""
    of = _session.session()
    found: list[Any] = of.wait(of.submit_group(kind, names, start, members_of(among)))
    return found


def _reduced(
    tensors: Sequence[Any],
    outs: Sequence[Any] | None,
    average: bool | None,
    names: list[str | None],
    how: tuple[float, float, ProcessSet, int | None],
) -> list[Any]:
    """outs: where the results go; None: to new NDArrays. how: scales, process set, op."""
    prescale, postscale, among, op = how
    reduction, call = Reduction(choose_op(op, average), prescale, postscale, among), "allreduce"
    into = outs or [empty(tensor, call) for tensor in tensors]

    def start(i: int) -> int:
        function = lib.halay_trainer_allreduce_shaped
        return reduction.submit(function, call, names[i], tensors[i], into[i])

    return _all(call, names, start, among)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """The reduction of all ranks' NDArrays, in a new one."""
    how = (prescale_factor, postscale_factor, process_set, op)
    return _reduced([tensor], None, average, [name], how)[0]


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """As allreduce(), in place."""
    how = (prescale_factor, postscale_factor, process_set, op)
    return _reduced([tensor], [tensor], average, [name], how)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """As allreduce() of each, at once."""
    how = (prescale_factor, postscale_factor, process_set, op)
    return _reduced(tensors, None, average, _names(name, len(tensors)), how)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Any]:
    """As allreduce_() of each, at once."""
    how = (prescale_factor, postscale_factor, process_set, op)
    return _reduced(tensors, tensors, average, _names(name, len(tensors)), how)


def allgather(
    tensor: Any,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """All ranks' NDArrays one after the other along the first dimension, which may differ."""
    return _gathered([tensor], [name], process_set)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """As allgather() of each, at once."""
    return _gathered(tensors, _names(name, len(tensors)), process_set)


def _gathered(tensors: Sequence[Any], names: list[str | None], among: ProcessSet) -> list[Any]:
    def start(i: int) -> int:
        return submit_gather("allgather", tensors[i], names[i], among, None, lambda out, _: out)

    return _all("allgather", names, start, among)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The NDArray of rank root_rank, in a new one."""
    return broadcast_(tensor.copy(), root_rank, name, priority, process_set)


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As broadcast(), in place."""
    return _session.session().wait(submit_broadcast(tensor, root_rank, name, process_set))


def _checked_splits(splits: Any, nrows: int, nranks: int) -> list[int]:
    """How many rows go to each rank."""
    if splits is None:
        found = [nrows // nranks] * nranks
    else:
        listed = seen(splits, "alltoall", "splits") if hasattr(splits, "context") else splits
        if np.asarray(listed).dtype.kind not in "iu":
            raise ValueError(f"alltoall: splits must be integers, not {np.asarray(listed).dtype}")
        found = [int(one) for one in listed]
    wrong = ""
    if splits is None and nrows % nranks:
        wrong = f"{nrows} rows cannot be dealt out evenly to {nranks} ranks; give splits"
    elif len(found) != nranks or min(found) < 0:
        wrong = f"splits must have one number, not negative, for each of {nranks} ranks: {found}"
    elif sum(found) > nrows:
        wrong = f"splits of {sum(found)} rows in all, the NDArray has {nrows}: {found}"
    if wrong:
        of = _session.session()
        text = f"alltoall: {wrong}"
        raise InvalidArgument(lib.HALAY_EINVAL, "HALAY_EINVAL", text, of.rank, of.host)
    return found


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows that all ranks had for this one; with splits also how many each had.

    splits: how many rows go to each rank, integers; without them all get as many.
    """
    members = members_of(process_set)
    if len(tensor.shape) == 0:
        raise ValueError("alltoall: a scalar has no rows")
    own = _checked_splits(splits, tensor.shape[0], members.size)

    def then(out: Any, rows: list[int]) -> Any:
        return out if splits is None else (out, mx.nd.array(rows, dtype="int32"))

    return _session.session().wait(submit_gather("alltoall", tensor, name, process_set, own, then))


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the reduction, in a new NDArray."""
    how = (prescale_factor, postscale_factor, process_set)
    return _scattered([tensor], op, [name], how)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """As reducescatter() of each, at once."""
    how = (prescale_factor, postscale_factor, process_set)
    return _scattered(tensors, op, _names(name, len(tensors)), how)


def _scattered(
    tensors: Sequence[Any], op: int, names: list[str | None], how: tuple[float, float, ProcessSet]
) -> list[Any]:
    if op not in (Average, Sum):
        raise ValueError("reducescatter: op has to be Average or Sum")
    reduction, members, kind = Reduction(op, *how), members_of(how[2]), "reducescatter"
    outs = []
    for tensor in tensors:
        if len(tensor.shape) == 0:
            raise ValueError("reducescatter: a scalar has no rows")
        rows, more = divmod(tensor.shape[0], members.size)
        outs.append(empty(tensor, kind, rows + ((members.rank or 0) < more)))

    def start(i: int) -> int:
        call = lib.halay_trainer_reduce_scatter
        return reduction.submit(call, kind, names[i], tensors[i], outs[i])

    return _all(kind, names, start, how[2])
