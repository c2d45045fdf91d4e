# SPDX-License-Identifier: Apache-2.0
"""Collectives on JAX's arrays, inside jax.jit, grad, vmap and scan, and outside.

They are matched by name, so ranks may run them in different orders. A name that is not given is
derived from the line of the program that asks for it, the same on all ranks; where a program has
that line twice, the second gets a number. Shapes and dtypes are the same on all ranks: a rank that
brings another one fails on all of them, by name.

Gradients are the transposes, as those of jax.lax's collectives: the losses of all ranks count as
one, their sum.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .. import _objects, _session
from .._core import lib
from .._process_sets import ProcessSet, global_process_set, members_of, root_among
from .._reductions import BOOL_OPS, C_OPS, OP_NAMES, Adasum, Average, Max, Min, Sum
from .._session import Members
from ._native import gate_of
from ._primitives import (
    How,
    allgather_p,
    allreduce_p,
    alltoall_p,
    broadcast_p,
    reducescatter_p,
)
from .compression import Compression, Compressor

_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


# ---------------------------------------------------------------------------- descriptions


def _array(value: Any, kind: str, name: str | None) -> Any:
    try:
        found = jnp.asarray(value)
    except (TypeError, ValueError) as cause:
        raise TypeError(
            f"{_shown(kind, name)}: needs an array, not {type(value).__name__}: {cause}"
        ) from cause
    if found.dtype.name not in _DTYPES:
        raise TypeError(
            f"{_shown(kind, name)}: dtype {found.dtype.name} is not one of {', '.join(_DTYPES)}"
        )
    return found


def _shown(kind: str, name: str | None) -> str:
    return kind if name is None else f"{kind} {name!r}"


def _among(process_set: ProcessSet, kind: str, name: str | None) -> Members:
    members = members_of(process_set)
    if members.rank is None:
        raise ValueError(
            f"{_shown(kind, name)}: rank {_session.session().rank} is not in process set "
            f"{members.number}, which has the ranks {', '.join(map(str, members.ranks))}"
        )
    return members


def _how(
    kind: str, name: str | None, process_set: ProcessSet, derived: bool = False, **more: Any
) -> How:
    members = _among(process_set, kind, name)
    where = _session.place()
    if name is None:
        derived = True
        name = os.path.basename(where.decode("utf-8", "replace")) or "program"
    if where:
        lib.halay_trainer_place(members.trainer, f"jax.{kind}.{name}".encode()[:255], where, 1)
    return How(kind, name, derived, members.number, gate_of(members), members.size, **more)


def _reduction(array: Any, op: int, prescale: float, postscale: float, what: str) -> dict[str, Any]:
    """Halay's operation and scales; Average divides by as many ranks as there are when it runs."""
    if op == Adasum:
        raise NotImplementedError(f"{what}: op Adasum is there for torch and TensorFlow only")
    if op not in range(len(OP_NAMES)):
        raise ValueError(f"{what}: op={op!r}: use hvd.Average, Sum, Min, Max or Product")
    scaled = prescale != 1.0 or postscale != 1.0
    inexact = jnp.issubdtype(array.dtype, jnp.inexact)
    if scaled and (op not in (Average, Sum) or not inexact):
        raise TypeError(
            f"{what}: prescale_factor and postscale_factor need op Average or Sum, and a floating "
            "point or complex dtype"
        )
    if array.dtype == jnp.bool_:
        if op not in BOOL_OPS:
            raise TypeError(f"{what}: bool takes op Min, Max or Product; convert it, as by astype")
        return {"op": BOOL_OPS[op]}
    if op == Average and not inexact:
        return {"op": lib.HALAY_AVERAGE}
    if jnp.issubdtype(array.dtype, jnp.complexfloating) and op in (Min, Max):
        raise TypeError(f"{what}: op {OP_NAMES[op]} does not take complex numbers")
    c_op = lib.HALAY_SUM if op == Average else C_OPS[op]
    scales = {"prescale": float(prescale), "postscale": float(postscale)}
    return {"op": c_op, "mean": op == Average, **scales}


def _rows(array: Any, kind: str, name: str | None, parts: int = 1) -> Any:
    if array.ndim == 0:
        raise ValueError(f"{_shown(kind, name)}: a scalar has no rows; use array[None]")
    if array.shape[0] % parts:
        raise ValueError(
            f"{_shown(kind, name)}: {array.shape[0]} rows cannot be dealt out evenly to {parts} "
            "ranks"
        )
    return array


# ---------------------------------------------------------------------------- collectives


def allreduce(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of all ranks' arrays. Integers are averaged by a division toward zero."""
    scales = (prescale_factor, postscale_factor)
    return reduce_leaf(array, name, False, op, scales, compression, process_set)


def reduce_leaf(
    array: Any,
    name: str | None,
    derived: bool,
    op: int,
    scales: tuple[float, float],
    compression: type[Compressor],
    process_set: ProcessSet,
) -> Any:
    """allreduce(). derived: the name is not the program's, and may get a number."""
    kind = "allreduce"
    array = _array(array, kind, name)
    sent, ctx = compression.compress(array)
    what = _reduction(sent, op, *scales, _shown(kind, name))
    (out,) = allreduce_p.bind(sent, how=_how(kind, name, process_set, derived, **what))
    return compression.decompress(out, ctx)


def grouped_allreduce(
    arrays: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allreduce() of each array, as one call: none is reduced before all ranks have all of them.

    They have to be all of floating point or complex dtypes, or all of integers.
    """
    kind = "allreduce"
    if hasattr(arrays, "dtype") or len(arrays) == 0:
        raise ValueError("grouped_allreduce: needs a list of at least one array")
    listed = [_array(array, kind, name) for array in arrays]
    sent, contexts = zip(*(compression.compress(array) for array in listed))
    shown = f"grouped_{_shown(kind, name)}"
    whats = [_reduction(one, op, prescale_factor, postscale_factor, shown) for one in sent]
    if any(what != whats[0] for what in whats):
        raise TypeError(f"{shown}: the dtypes need different operations: make a group of each kind")
    found = allreduce_p.bind(*sent, how=_how(kind, name, process_set, **whats[0]))
    return [compression.decompress(out, ctx) for out, ctx in zip(found, contexts)]


def allgather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """All ranks' arrays one after the other along the first dimension, of equal length.

    For rows that differ between ranks see allgather_object() or halay.arrays: a compiled program's
    shapes are fixed.
    """
    kind = "allgather"
    found = _rows(_array(array, kind, name), kind, name)
    (out,) = allgather_p.bind(found, how=_how(kind, name, process_set))
    return out


def broadcast(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The array of rank root_rank, which is a rank of the job, also in a process set."""
    kind = "broadcast"
    found = _array(array, kind, name)
    members = _among(process_set, kind, name)
    root = root_among(members, root_rank, _shown(kind, name))
    (out,) = broadcast_p.bind(found, how=_how(kind, name, process_set, root=root))
    return out


def reducescatter(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """This rank's rows of the reduction; their number has to be a multiple of the ranks'."""
    kind = "reducescatter"
    size = _among(process_set, kind, name).size
    found = _rows(_array(array, kind, name), kind, name, size)
    what = _reduction(found, op, prescale_factor, postscale_factor, _shown(kind, name))
    (out,) = reducescatter_p.bind(found, how=_how(kind, name, process_set, **what))
    return out


def alltoall(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Rows are dealt out evenly: the first part to rank 0, and so on; out comes what all had for
    this rank."""
    kind = "alltoall"
    size = _among(process_set, kind, name).size
    found = _rows(_array(array, kind, name), kind, name, size)
    (out,) = alltoall_p.bind(found, how=_how(kind, name, process_set))
    return out


# ---------------------------------------------------------------------------- outside of programs


def _refuse_traced(kind: str) -> None:
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        raise RuntimeError(
            f"{kind}() is called inside jax.jit or the like, where it would run once, when the "
            "program is traced: call it outside"
        )


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it. Not inside jax.jit."""
    _refuse_traced("barrier")
    _objects.barrier(process_set)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of rank root_rank, pickled; other ranks' obj is ignored. Not inside jax.jit."""
    _refuse_traced("broadcast_object")
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks, pickled. Not inside jax.jit."""
    _refuse_traced("allgather_object")
    return _objects.allgather_object(obj, name, process_set)
