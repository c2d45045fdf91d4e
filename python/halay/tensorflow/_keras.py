# SPDX-License-Identifier: Apache-2.0
"""Optimizers of Keras 3 and of the older Keras (tf_keras) that reduce the gradients they apply."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .gradients import Reducer


class _Steps:
    """Which of backward_passes_per_step this is, and the sums so far."""

    def __init__(self, steps: int, average: bool) -> None:
        self.steps, self.average = steps, average
        self.counter: Any = None
        self.sums: list[Any] = []

    def prepare(self, gradients: list[Any]) -> None:
        if self.counter is None:
            with tf.init_scope():
                self.counter = tf.Variable(0, trainable=False)
                self.sums = [tf.Variable(tf.zeros(g.shape, g.dtype)) for g in gradients]


class _Apply:
    """Keras 3: everything that applies gradients comes through apply()."""

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        chosen = trainable_variables
        if chosen is None:
            chosen = self._trainable_variables
        return self._halay_apply(
            list(grads),
            list(chosen),
            lambda reduced: super(_Apply, self).apply(reduced, trainable_variables),  # type: ignore[misc]
        )


class _ApplyGradients:
    """The older Keras."""

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        return self._halay_apply(
            [gradient for gradient, _ in pairs],
            variables,
            lambda reduced: super(_ApplyGradients, self).apply_gradients(  # type: ignore[misc]
                list(zip(reduced, variables)), *args, **kwargs
            ),
        )


class _Distributed:
    """What is added to the optimizer's own class."""

    _halay: Reducer
    _halay_steps: _Steps

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays this rank's own."""
        self._halay.register_local(var)

    def _halay_apply(self, gradients: list[Any], variables: list[Any], apply: Any) -> Any:
        steps = self._halay_steps
        if steps.steps == 1:
            return apply(self._halay.reduce(gradients, variables))
        dense = [self._halay._dense(gradient) for gradient in gradients]
        if any(one is None or isinstance(one, tf.IndexedSlices) for one in dense):
            raise ValueError(
                "backward_passes_per_step > 1 needs a gradient for each variable, and "
                "sparse_as_dense=True where some are sparse"
            )
        steps.prepare(dense)
        for total, one in zip(steps.sums, dense):
            total.assign_add(one)
        steps.counter.assign_add(1)

        def last() -> Any:
            share = steps.steps if steps.average else 1
            sums = [total.read_value() / share for total in steps.sums]
            apply(self._halay.reduce(sums, variables))
            for total in steps.sums:
                total.assign(tf.zeros_like(total))
            steps.counter.assign(0)
            return tf.constant(True)

        return tf.cond(tf.equal(steps.counter, steps.steps), last, lambda: tf.constant(False))


def wrap(optimizer: Any, reducer: Reducer, steps: int, average: bool) -> Any:
    """An optimizer as this one, of a class of the same name: a saved model knows nothing of us."""
    kind = type(optimizer)
    if hasattr(kind, "apply") and hasattr(kind, "stateless_apply"):
        layer: type = _Apply
    elif hasattr(kind, "apply_gradients"):
        layer = _ApplyGradients
    else:
        raise TypeError(f"DistributedOptimizer: {kind.__name__} is no optimizer of Keras or TF1")
    made: Any = type(kind.__name__, (_Distributed, layer, kind), {"__module__": kind.__module__})
    wrapped = made.from_config(optimizer.get_config())
    wrapped._halay, wrapped._halay_steps = reducer, _Steps(steps, average)
    return wrapped
