# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the older Keras (tf_keras), with Horovod's ways to reduce gradients.

fit() and apply_gradients() reduce what they are given. A loop of the program's own may ask for the
reduced gradients by _compute_gradients(), and apply them by apply_gradients().
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Aggregate:
    """Adds up the gradients of several steps; the last one has them reduced."""

    def __init__(self, steps: int, average: bool) -> None:
        self.steps, self.average = steps, average
        self.counter: Any = tf.Variable(0, trainable=False, dtype=tf.int32)
        self._sums: list[Any] = []

    def compute(self, reducer: Any, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """In the last step the reduced sums; in the others this step's own gradients."""
        dense = [
            tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients
        ]
        places = [i for i, gradient in enumerate(dense) if gradient is not None]
        given, own = [dense[i] for i in places], [variables[i] for i in places]
        if not self._sums:
            with tf.init_scope():
                self._sums = [tf.Variable(tf.zeros(v.shape, v.dtype)) for v in own]
        for total, one in zip(self._sums, given):
            total.assign_add(one)
        self.counter.assign_add(1)

        def last() -> list[Any]:
            share = self.steps if self.average else 1
            reduced = reducer.reduce([total.read_value() / share for total in self._sums], own)
            for total in self._sums:
                total.assign(tf.zeros_like(total))
            self.counter.assign(0)
            return [tf.identity(one) for one in reduced]

        found = tf.cond(
            tf.equal(self.counter, self.steps), last, lambda: [tf.identity(one) for one in given]
        )
        for place, one in zip(places, found if isinstance(found, (list, tuple)) else [found]):
            dense[place] = one
        return dense


class LegacyOptimizer:
    """What is added to a class of tf_keras.optimizers."""

    _halay: Any
    _agg_helper: Aggregate | None

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays this rank's own."""
        self._halay.register_local(var)

    def _reduce_pairs(self, pairs: Any) -> list[tuple[Any, Any]]:
        gradients, variables = [list(part) for part in zip(*pairs)]
        if self._agg_helper is not None:
            return list(zip(self._agg_helper.compute(self._halay, gradients, variables), variables))
        return list(zip(self._halay.reduce(gradients, variables), variables))

    def _compute_gradients(
        self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        variables = list(var_list() if callable(var_list) else var_list)
        if tape is None:
            tape = tf.GradientTape()
        if callable(loss):
            with tape:
                tape.watch(variables)
                loss = loss()
        gradients = tape.gradient(loss, variables, grad_loss)
        self._halay_computed = True  # the next apply_gradients() is of these
        found: list[tuple[Any, Any]] = self._reduce_pairs(zip(gradients, variables))
        return found

    def apply_gradients(
        self: Any,
        grads_and_vars: Any,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> Any:
        pairs = list(grads_and_vars)
        aggregate = kwargs.pop("experimental_aggregate_gradients", True)
        counted = self._halay_computed
        self._halay_computed = False
        if aggregate and not skip_gradients_aggregation and not counted:
            pairs = self._reduce_pairs(pairs)
        apply = super().apply_gradients  # type: ignore[misc]

        def now() -> Any:
            return apply(pairs, name=name, skip_gradients_aggregation=True, **kwargs)

        if self._agg_helper is None:
            return now()
        with tf.init_scope():
            self.build([variable for _, variable in pairs])
        return tf.cond(
            tf.equal(self._agg_helper.counter, 0),
            lambda: tf.group(now()),
            lambda: tf.group(self.iterations.assign_add(1)),
        )

    _halay_computed = False


def wrap(optimizer: Any, reducer: Any, steps: int, average: bool) -> Any:
    """An optimizer as this one, of a class of the same name: a saved model knows nothing of us."""
    kind = type(optimizer)
    if not hasattr(kind, "aggregate_gradients"):  # of tf_keras.optimizers.legacy
        from ..tensorflow._keras import wrap as wrap_older

        return wrap_older(optimizer, reducer, steps, average)
    made = type(kind.__name__, (LegacyOptimizer, kind), {"__module__": kind.__module__})
    wrapped: Any = optimizer
    if getattr(optimizer, "_built", False):
        wrapped.__class__ = made  # as from a saved model: its state stays
    else:
        wrapped = made.from_config(optimizer.get_config())  # type: ignore[attr-defined]
    wrapped._halay = reducer
    wrapped._agg_helper = Aggregate(steps, average) if steps > 1 else None
    return wrapped
