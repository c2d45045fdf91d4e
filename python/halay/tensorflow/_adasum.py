# SPDX-License-Identifier: Apache-2.0
"""Adasum (arXiv 2006.02924), made of collectives; docs/decisions/fusion.md#0022 has the reasons.

Each rank gets one chunk of all ranks' vectors by an alltoall, so that only dot products are summed
over ranks; an allgather puts the chunks of the result together.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._process_sets import ProcessSet, members_of
from .._reductions import Sum
from . import _submit

_SMALLEST = 2.2250738585072014e-308**0.5  # of |a|^2; below it the factor of a is 1


def adasum(
    tensor: Any, factor: float, among: ProcessSet, name: str | None, ignore_name_scope: bool
) -> Any:
    """Adasum of one tensor; one factor scales before and after, as Adasum is homogeneous."""
    members = members_of(among)
    found = tf.convert_to_tensor(tensor)
    if not found.dtype.is_floating:
        raise TypeError(
            f"allreduce: op Adasum takes floating point tensors, not {found.dtype.name}"
        )
    steps = iter(range(1 << 16))

    def named(step: str) -> dict[str, Any]:
        own = None if name is None else f"{name}_{step}_{next(steps)}"
        return {"name": own, "ignore_name_scope": ignore_name_scope}

    flat, count = tf.reshape(found, [-1]), tf.size(found)
    chunk = (count + members.size - 1) // members.size
    padded = tf.pad(flat, [[0, chunk * members.size - count]])
    rows, _ = _submit.alltoall(padded, tf.constant([], tf.int32), members.number, **named("rows"))
    vectors = list(
        tf.unstack(tf.cast(tf.reshape(rows, [members.size, -1]), tf.float64), num=members.size)
    )
    weights = [1.0] * members.size  # ranks that a vector stands for
    while len(vectors) > 1:
        pairs = list(zip(vectors[0::2], vectors[1::2]))
        dots = tf.stack(
            [tf.reduce_sum(x * y) for a, b in pairs for x, y in ((a, b), (a, a), (b, b))]
        )
        (sums,) = _submit.allreduce([dots], Sum, members.number, **named("dots"))
        found_pairs, stand = [], []
        for i, (a, b) in enumerate(pairs):
            both, of_a, of_b = sums[3 * i], sums[3 * i + 1], sums[3 * i + 2]
            whole = weights[2 * i] + weights[2 * i + 1]
            found_pairs.append(
                _share(weights[2 * i] / whole, both, of_a) * a
                + _share(weights[2 * i + 1] / whole, both, of_b) * b
            )
            stand.append(whole)
        left = len(vectors) % 2
        vectors = found_pairs + vectors[len(vectors) - left :]
        weights = stand + weights[len(weights) - left :]
    own = tf.cast(vectors[0] * factor, found.dtype)
    (whole_result,), _ = _submit.allgather([own], members.number, **named("result"))
    result = tf.reshape(whole_result[:count], tf.shape(found))
    result.set_shape(found.shape)
    return result


def _share(share: float, both: Any, square: Any) -> Any:
    """The factor of one of the two."""
    safe = tf.where(square >= _SMALLEST, square, tf.ones_like(square))
    return tf.where(square >= _SMALLEST, 1 - share * both / safe, tf.ones_like(square))
