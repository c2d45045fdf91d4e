# SPDX-License-Identifier: Apache-2.0
"""Trees of arrays: gradients, parameters, and an optimizer of optax that averages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from .._process_sets import ProcessSet, global_process_set
from .._reductions import Average
from .compression import Compression, Compressor
from .ops import broadcast, broadcast_object, reduce_leaf


def _named(tree: Any, name: str) -> tuple[list[tuple[str, Any]], Any]:
    """Each leaf with a name: how many there are, for another model's not to meet these, and where
    it stands in the tree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    whole = f"{name}.{len(leaves)}"
    return [(whole + jax.tree_util.keystr(path), leaf) for path, leaf in leaves], structure


def allreduce_tree(
    tree: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """allreduce() of each leaf, under the name of its place in the tree.

    Each begins as soon as it is there; Halay puts small ones together. name: what stands before
    the place, once in a program; without it the second tree's names get a number.
    """
    scales = (prescale_factor, postscale_factor)
    return reduce_tree(tree, name or "tree", name is None, op, scales, compression, process_set)


def reduce_tree(
    tree: Any,
    name: str,
    derived: bool,
    op: int,
    scales: tuple[float, float],
    compression: type[Compressor],
    process_set: ProcessSet,
) -> Any:
    """allreduce_tree(). derived: the name is not the program's, and may get a number."""
    leaves, structure = _named(tree, name)
    out = [
        reduce_leaf(leaf, own, derived, op, scales, compression, process_set)
        for own, leaf in leaves
    ]
    return jax.tree_util.tree_unflatten(structure, out)


def broadcast_parameters(
    params: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tree with root_rank's arrays: parameters, or the state of an optimizer. Returns it.

    Types stay: those that nothing is reduced in go as others, and leaves that are no arrays of JAX,
    such as numbers, as objects; inside jax.jit these are taken for arrays.
    """
    leaves, structure = _named(params, name or "parameters")
    traced = isinstance(jax.numpy.zeros(()), jax.core.Tracer)
    out = [leaf for _, leaf in leaves]
    objects: dict[int, Any] = {}
    if not traced:  # which leaves are objects the root says: others may have arrays there
        objects = {i: leaf for i, leaf in enumerate(out) if not isinstance(leaf, jax.Array)}
        own_name = f"{name or 'parameters'}.{len(leaves)}"
        objects = broadcast_object(objects, root_rank, own_name, process_set)
    for i, (own, leaf) in enumerate(leaves):
        if i in objects:
            out[i] = objects[i]
            continue
        array = leaf if traced or isinstance(leaf, jax.Array) else jax.numpy.asarray(leaf)
        sent, back = _as_sent(array)
        out[i] = back(broadcast(sent, root_rank, own, process_set))
    return jax.tree_util.tree_unflatten(structure, out)


def _as_sent(leaf: Any) -> tuple[Any, Callable[[Any], Any]]:
    """An array of a type that is sent, and what makes the leaf of it again, to the bit."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return leaf, lambda found: found
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        of = jax.random.key_impl(leaf)
        return jax.random.key_data(leaf), lambda found: jax.random.wrap_key_data(found, impl=of)
    if dtype.name.startswith("float8"):
        convert = jax.lax.bitcast_convert_type
        return convert(leaf, jax.numpy.uint8), lambda found: convert(found, dtype)
    if dtype.name.startswith(("int2", "int4", "uint2", "uint4", "float4")):
        wide = jax.numpy.float32 if dtype.name.startswith("float") else jax.numpy.int8
        return leaf.astype(wide), lambda found: found.astype(dtype)
    return leaf, lambda found: found


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    op: int = Average,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optax transformation: the ranks' gradients are reduced, then handed to optimizer.

    backward_passes_per_step: that many gradients are averaged on each rank before; in between the
    updates are zeros (optax.MultiSteps).
    """
    import optax

    inner = optax.with_extra_args_support(optimizer)
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: at least 1")

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        reduced = allreduce_tree(
            updates, name, op, prescale_factor, postscale_factor, compression, process_set
        )
        return inner.update(reduced, state, params, **extra)

    made = optax.GradientTransformationExtraArgs(inner.init, update)
    if backward_passes_per_step == 1:
        return made
    return optax.MultiSteps(made, backward_passes_per_step).gradient_transformation()
