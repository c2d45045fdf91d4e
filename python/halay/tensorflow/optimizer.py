# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer whose gradients are reduced over all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._process_sets import ProcessSet, global_process_set
from .._reductions import Adasum, Average, check_reduction
from .compression import Compression, Compressor
from .gradients import Groups, Reducer, checked_groups

_Legacy: Any = tf.compat.v1.train.Optimizer


class _Aggregate:
    """Adds up the gradients of several steps, and reduces them in the last one. For graphs."""

    def __init__(self, steps: int, average: bool, reducer: Reducer) -> None:
        self._steps, self._average, self._reducer = steps, average, reducer
        self.counter: Any = None
        self._sums: list[Any] = []

    def _prepare(self, gradients: list[Any]) -> None:
        make = tf.compat.v1.get_variable
        with tf.compat.v1.variable_scope("halay_aggregate", reuse=tf.compat.v1.AUTO_REUSE):
            name = self._reducer.name
            zero = tf.zeros_initializer()
            self.counter = make(f"{name}_counter", [], tf.int32, zero, trainable=False)
            self._sums = [
                make(f"{name}_{i}", one.shape, one.dtype, zero, trainable=False)
                for i, one in enumerate(gradients)
            ]

    def compute(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """What to apply in the last of the steps; in the others it is not applied."""
        dense = [self._reducer._dense(gradient) for gradient in gradients]
        if any(isinstance(one, tf.IndexedSlices) for one in dense):
            raise ValueError("backward_passes_per_step > 1 needs sparse_as_dense=True here")
        places = [i for i, gradient in enumerate(dense) if gradient is not None]
        given = [dense[i] for i in places]
        self._prepare(given)
        with tf.control_dependencies([self.counter.assign_add(1)]):
            step = tf.identity(self.counter)
        with tf.control_dependencies([step]):
            added = [total.assign_add(one) for total, one in zip(self._sums, given)]
        with tf.control_dependencies(added):
            found = tf.cond(
                tf.equal(step, self._steps),
                lambda: self._finish([variables[i] for i in places]),
                lambda: [tf.identity(total) for total in self._sums],
            )
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        for place, one in zip(places, found):
            dense[place] = one
        return dense

    def _finish(self, variables: list[Any]) -> list[Any]:
        sums = [tf.identity(total) for total in self._sums]
        reduced = self._reducer.reduce(sums, variables)
        if self._average:
            reduced = [one / self._steps for one in reduced]
        with tf.control_dependencies(sums):
            cleared = [self.counter.assign(0)]
            cleared += [total.assign(tf.zeros_like(total)) for total in self._sums]
        with tf.control_dependencies(cleared):
            return [tf.identity(one) for one in reduced]

    def apply(self, pairs: Any, apply: Any, global_step: Any) -> Any:
        """apply() in the last step only; the others count, too."""
        given = [gradient for gradient, _ in pairs if gradient is not None]
        with tf.control_dependencies(given):
            last = tf.equal(tf.identity(self.counter), 0)

        def skip() -> Any:
            return tf.group() if global_step is None else tf.group(global_step.assign_add(1))

        return tf.cond(last, lambda: tf.group(apply()), skip)


class _Optimizer(_Legacy):  # type: ignore[misc]
    """Wraps a TF1-style optimizer, in a graph or eagerly."""

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        reducer: Reducer,
        steps: int,
        average: bool,
    ) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer, self._reducer = optimizer, reducer
        self._aggregate: _Aggregate | None = None
        if steps > 1:
            if tf.executing_eagerly():
                raise ValueError(
                    "backward_passes_per_step > 1 of a TF1-style optimizer needs a graph"
                )
            self._aggregate = _Aggregate(steps, average, reducer)

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays this rank's own."""
        self._reducer.register_local(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the optimizer's, reduced over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients, variables = [list(part) for part in zip(*pairs)]
        reduce = self._aggregate.compute if self._aggregate else self._reducer.reduce
        return list(zip(reduce(gradients, variables), variables))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """As the optimizer's; with backward_passes_per_step, in the last of the steps."""
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        return self._aggregate.apply(pairs, apply, global_step) if self._aggregate else apply()

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The optimizer, with gradients that are reduced over all ranks before they are applied.

    optimizer: of Keras, or a tf.compat.v1.train.Optimizer. backward_passes_per_step: so many steps'
    gradients are added up, and averaged if average_aggregated_gradients, before they are applied;
    Keras 3 reduces in each step, the others in the last. The others are as of
    DistributedGradientTape().
    """
    check_reduction(op, gradient_predivide_factor)
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: at least 1")
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("op Adasum does not go with average_aggregated_gradients")
    reducer = Reducer(
        name or f"Distributed{type(optimizer).__name__}",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        checked_groups(groups, num_groups),
        process_set,
        scale_local_gradients,
    )
    if isinstance(optimizer, _Legacy):
        return _Optimizer(
            optimizer,
            reducer.name,
            use_locking,
            reducer,
            backward_passes_per_step,
            average_aggregated_gradients,
        )
    if hasattr(optimizer, "_aggregate_gradients") or hasattr(optimizer, "aggregate_gradients"):
        from ._tf_keras import wrap
    else:
        from .._keras3 import wrap
    return wrap(optimizer, reducer, backward_passes_per_step, average_aggregated_gradients)
