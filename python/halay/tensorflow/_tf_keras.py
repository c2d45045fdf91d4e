# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the older Keras (tf_keras and its optimizers.legacy) that reduce the gradients they
apply, with Horovod's ways to do so.

fit() and apply_gradients() reduce what they are given. A loop of the program's own may ask for the
reduced gradients by _compute_gradients(), and apply them by apply_gradients(). A LossScaleOptimizer
asks for the reduced ones before it looks for infinities: all ranks skip the same steps.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .gradients import Reducer


class Aggregate:
    """Adds up the gradients of several steps; the last one has them reduced."""

    def __init__(self, steps: int, average: bool) -> None:
        self.steps, self.average = steps, average
        self.counter: Any = tf.Variable(0, trainable=False, dtype=tf.int32)
        self._sums: list[Any] = []

    def compute(self, reducer: Reducer, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """In the last step the reduced sums; zeros in the others, which are not applied."""
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
            tf.equal(self.counter, self.steps), last, lambda: [tf.zeros_like(one) for one in given]
        )
        for place, one in zip(places, found if isinstance(found, (list, tuple)) else [found]):
            dense[place] = one
        return dense


class Distributed:
    """What is added to the optimizer's own class."""

    _halay: Reducer
    _agg_helper: Aggregate | None
    _halay_reduced = False  # what comes next

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays this rank's own."""
        self._halay.register_local(var)

    def aggregate_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        """apply_gradients() and LossScaleOptimizer call it: pairs as they are to be applied."""
        pairs = list(grads_and_vars)
        if not pairs or self._halay_reduced:
            self._halay_reduced = False
            return pairs
        gradients, variables = [list(part) for part in zip(*pairs)]
        if self._agg_helper is not None:
            found = self._agg_helper.compute(self._halay, gradients, variables)
        else:
            found = self._halay.reduce(gradients, variables)
        return list(zip(found, variables))

    _aggregate_gradients = aggregate_gradients  # the name in optimizers.legacy

    def _compute_gradients(
        self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Horovod's: the reduced gradients with their variables, for apply_gradients()."""
        if hasattr(super(), "compute_gradients"):
            if grad_loss is not None:
                raise ValueError("_compute_gradients: this optimizer takes no grad_loss")
            pairs = list(super().compute_gradients(loss, var_list, tape))  # type: ignore[misc]
        else:
            pairs = super()._compute_gradients(  # type: ignore[misc]
                loss, var_list, grad_loss, tape
            )
        if getattr(self, "_is_wrapped_by_loss_scale_optimizer", False):
            return list(pairs)  # they are scaled: it asks for the reduced ones later
        found: list[tuple[Any, Any]] = self.aggregate_gradients(pairs)
        self._halay_reduced = True
        return found

    def apply_gradients(
        self: Any,
        grads_and_vars: Any,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        pairs = list(grads_and_vars)
        if experimental_aggregate_gradients and not skip_gradients_aggregation:
            pairs = self.aggregate_gradients(pairs)
        self._halay_reduced = False
        apply = super().apply_gradients  # type: ignore[misc]

        def now() -> Any:
            return apply(pairs, name=name, experimental_aggregate_gradients=False)

        if self._agg_helper is None:
            return now()
        with tf.init_scope():
            build = self.build if hasattr(self, "build") else self._create_all_weights
            build([variable for _, variable in pairs])
        return tf.cond(
            tf.equal(self._agg_helper.counter, 0),
            lambda: tf.group(now()),
            lambda: tf.group(self.iterations.assign_add(1)),
        )


def wrap(optimizer: Any, reducer: Reducer, steps: int, average: bool) -> Any:
    """An optimizer as this one, of a class of the same name: a saved model knows nothing of us.

    One that has variables, as from a saved model, is changed itself: its state stays.
    """
    kind = type(optimizer)
    if isinstance(optimizer, Distributed):
        raise ValueError("DistributedOptimizer: the optimizer is one already")
    made = type(kind.__name__, (Distributed, kind), {"__module__": kind.__module__})
    wrapped: Any = optimizer
    if getattr(optimizer, "_built", False):
        wrapped.__class__ = made
    else:
        wrapped = made.from_config(optimizer.get_config())  # type: ignore[attr-defined]
    wrapped._halay = reducer
    wrapped._agg_helper = Aggregate(steps, average) if steps > 1 else None
    return wrapped
