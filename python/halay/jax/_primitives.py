# SPDX-License-Identifier: Apache-2.0
"""JAX's primitives, one a collective: shapes, gradients, vmap, and the custom calls.

They have no effect of JAX's: that would take each call out of its fast dispatch. The custom calls
are marked to have one, so that XLA neither drops nor merges them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._core import interrupted, interrupts, lib
from ._native import ffi_of_jax

NAME_BYTES = int(lib.HALAY_TENSOR_NAME_MAX) - 16  # what is added below has room


class How(NamedTuple):
    """What a collective says with each call, the same on all ranks. It is a program's constant."""

    kind: str
    name: str
    derived: bool  # the name: a number may be added where it stands twice in a program
    number: int  # of the process set
    gate: int
    size: int
    op: int = 0
    mean: bool = False
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    keep: int = -1  # the rank that gets the result, where the others get zeros
    alone: bool = False  # it is all that its program does

    def renamed(self, suffix: str, **changes: Any) -> How:
        return self._replace(name=self.name + suffix, **changes)


def _same(how: How, avals: Sequence[Any]) -> list[Any]:
    return list(avals)


def _gathered(how: How, avals: Sequence[Any]) -> list[Any]:
    (aval,) = avals
    return [aval.update(shape=(aval.shape[0] * how.size, *aval.shape[1:]))]


def _scattered(how: How, avals: Sequence[Any]) -> list[Any]:
    (aval,) = avals
    return [aval.update(shape=(aval.shape[0] // how.size, *aval.shape[1:]))]


# ---------------------------------------------------------------------------- running alone


@functools.lru_cache(maxsize=4096)
def _compiled(primitive: Primitive, how: How) -> Any:
    alone = how._replace(alone=True)

    def run(*operands: Any) -> Any:
        return primitive.bind(*operands, how=alone)

    run.__name__ = run.__qualname__ = f"halay_{how.kind}"
    return jax.jit(run)


def _run(primitive: Primitive, *operands: Any, how: How) -> Any:
    try:
        if jax.config.jax_disable_jit:  # of the program: a custom call is always compiled
            with jax.disable_jit(False):
                return _compiled(primitive, how)(*operands)
        return _compiled(primitive, how)(*operands)
    finally:
        if interrupts:  # by a handler of a signal that has run while the call waited
            interrupted()


# ---------------------------------------------------------------------------- gradients


def _is_zero(value: Any) -> bool:
    return type(value) is ad.Zero


def _jvp(primitive: Primitive, primals: Any, tangents: Any, how: How) -> Any:
    out = primitive.bind(*primals, how=how)
    if all(_is_zero(tangent) for tangent in tangents):
        zeros: Any = [ad.Zero(_tangent_aval(value)) for value in out]
        return out, zeros
    if how.op != lib.HALAY_SUM:
        raise NotImplementedError(
            f"{how.kind} {how.name!r}: only Sum and Average have a gradient; wrap its argument "
            "in jax.lax.stop_gradient()"
        )
    there = [ad.instantiate_zeros(tangent) for tangent in tangents]
    return out, primitive.bind(*there, how=how.renamed(".tangent"))


def _tangent_aval(value: Any) -> Any:
    aval = jax.typeof(value) if hasattr(jax, "typeof") else jax.core.get_aval(value)
    return aval.to_tangent_aval()


def _transposed(how: How) -> tuple[Primitive, How, float]:
    """The collective that is the transpose, and by what to scale what it gives."""
    back = how.renamed(".gradient", keep=-1)
    if how.kind == "broadcast":
        return allreduce_p, back._replace(kind="allreduce", keep=how.root), 1.0
    if how.kind == "allreduce" and how.keep >= 0:
        return broadcast_p, back._replace(kind="broadcast", root=how.keep), 1.0
    if how.kind == "allgather":
        return reducescatter_p, back._replace(kind="reducescatter"), 1.0
    if how.kind == "reducescatter":
        factor = how.prescale * how.postscale / (how.size if how.mean else 1)
        plain = back._replace(kind="allgather", mean=False, prescale=1.0, postscale=1.0)
        return allgather_p, plain, factor
    return (alltoall_p if how.kind == "alltoall" else allreduce_p), back, 1.0


def _transpose(primitive: Primitive, cotangents: Any, *operands: Any, how: How) -> Any:
    """The transpose of a linear map over all ranks: their losses count as one, the sum."""
    linear = [ad.is_undefined_primal(operand) for operand in operands]
    if all(_is_zero(cotangent) for cotangent in cotangents):
        return [ad.Zero(o.aval) if is_linear else None for o, is_linear in zip(operands, linear)]
    there = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    by, changed, factor = _transposed(how)
    found = by.bind(*there, how=changed)
    if factor != 1.0:
        found = [value * factor for value in found]
    return [value if is_linear else None for value, is_linear in zip(found, linear)]


# ---------------------------------------------------------------------------- vmap


def _batch_elements(primitive: Primitive, operands: Any, dims: Any, how: How) -> Any:
    return primitive.bind(*operands, how=how), dims


def _batch_rows(primitive: Primitive, operands: Any, dims: Any, how: How) -> Any:
    """Rows stay the first dimension."""
    (operand,), (dim,) = operands, dims
    moved = jax.numpy.moveaxis(operand, dim, -1)
    return primitive.bind(moved, how=how), [moved.ndim - 1]


# ---------------------------------------------------------------------------- custom calls


class _Names:
    """Those of one program: a derived one that stands there again gets a number, in each process
    set from 0: ranks differ in which sets they are members of."""

    def __init__(self) -> None:
        self.times: dict[tuple[int, str], int] = {}

    def of(self, how: How) -> str:
        full = f"jax.{how.kind}.{how.name}"
        times = self.times.get((how.number, full), 0)
        self.times[how.number, full] = times + 1
        if len(full.encode()) > NAME_BYTES or "\0" in full:
            raise ValueError(
                f"{how.kind}: the name {full!r} has {len(full.encode())} bytes; at most "
                f"{NAME_BYTES} are allowed, and no zero byte: shorten it"
            )
        if times == 0:
            return full
        if not how.derived:
            raise ValueError(
                f"{how.kind}: the name {how.name!r} stands twice in one program: ranks could take "
                "one call for the other. Give each its own name"
            )
        return f"{full}#{times}"


def _names_of(context: Any) -> _Names:
    cache = context.module_context.cached_primitive_lowerings
    found: _Names = cache.setdefault("halay.jax", _Names())
    return found


def _refuse_devices(context: Any, how: How) -> None:
    where = context.module_context.axis_context
    devices = getattr(where, "num_devices", None)
    if devices is None:
        mesh = getattr(where, "mesh", None)
        devices = mesh.size if mesh is not None else where.axis_env.nreps
    pmapped = type(where).__name__ == "ReplicaAxisContext" and where.axis_env.names
    if devices not in (None, 1) or pmapped:
        raise NotImplementedError(
            f"{how.kind} {how.name!r}: the program runs on {devices} devices of this process "
            "(pmap, shard_map or a sharded jit). halay.jax has one device a process: start one "
            "process a device. For JAX's own sharding over Halay see "
            "docs/jax_collectives.md"
        )


def _lower(context: Any, *operands: Any, how: How) -> Any:
    _refuse_devices(context, how)
    name = _names_of(context).of(how)
    rule = ffi_of_jax.ffi_lowering(f"halay_{how.kind}", has_side_effect=True)
    return rule(
        context,
        *operands,
        gate=np.int64(how.gate),
        name=name,
        op=np.int64(how.op),
        mean=np.int64(how.mean),
        root=np.int64(how.root),
        keep=np.int64(how.keep),
        alone=np.int64(how.alone),
        prescale=np.float64(how.prescale),
        postscale=np.float64(how.postscale),
    )


def _refuse_platform(context: Any, *_: Any, how: How) -> Any:
    raise NotImplementedError(
        f"{how.kind} {how.name!r}: halay.jax works on the CPU's arrays, not on "
        f"{' or '.join(context.module_context.platforms)}: run it there (JAX_PLATFORMS=cpu, or "
        'jax.jit(..., backend="cpu"))'
    )


def _register(primitive: Primitive, rule: Any, platform: str | None) -> None:
    # Newer JAX emits equal calls once, and calls that twice.
    known = inspect.signature(mlir.register_lowering).parameters
    more = {"cacheable": False} if "cacheable" in known else {}
    mlir.register_lowering(primitive, rule, platform=platform, **more)


def _make(kind: str, shapes: Any, batch: Any) -> Primitive:
    made = Primitive(f"halay_{kind}")
    made.multiple_results = True
    made.def_impl(functools.partial(_run, made))
    made.def_abstract_eval(lambda *avals, how: shapes(how, avals))
    ad.primitive_jvps[made] = functools.partial(_jvp, made)
    ad.primitive_transposes[made] = functools.partial(_transpose, made)
    batching.primitive_batchers[made] = functools.partial(batch, made)
    _register(made, _refuse_platform, None)
    _register(made, _lower, "cpu")
    return made


allreduce_p = _make("allreduce", _same, _batch_elements)
broadcast_p = _make("broadcast", _same, _batch_elements)
allgather_p = _make("allgather", _gathered, _batch_rows)
reducescatter_p = _make("reducescatter", _scattered, _batch_rows)
alltoall_p = _make("alltoall", _same, _batch_rows)
