# SPDX-License-Identifier: Apache-2.0
"""Optimizers of Keras 3 that reduce the gradients they apply, on every back end.

A loss that is scaled (mixed_float16) has to be scaled around the reduction: only then do all ranks
skip a step in which one of them has infinities. So LossScaleOptimizer is what is extended here.
"""

from __future__ import annotations

from typing import Any

import keras

_Scaling: Any = keras.optimizers.LossScaleOptimizer


class Distributed:
    """What is added to the optimizer's own class. Everything that applies gradients comes through
    apply() or, on JAX, stateless_apply(), which calls it or does not."""

    _halay: Any
    _halay_share = 1  # what the mean of several steps is multiplied by
    _halay_reduced = False  # what apply() is given next

    def __setattr__(self, name: str, value: Any) -> None:
        # The first that LossScaleOptimizer does with an optimizer that it is to call.
        if name == "loss_scale_factor" and value is None and "_halay" in self.__dict__:
            raise ValueError(
                "LossScaleOptimizer around a DistributedOptimizer would skip a step on those ranks "
                "alone whose gradients have infinities: give DistributedOptimizer() the "
                "LossScaleOptimizer(optimizer)"
            )
        super().__setattr__(name, value)

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays this rank's own."""
        self._halay.register_local(var)

    def _halay_reduce(self, gradients: Any, variables: Any) -> list[Any]:
        found: list[Any] = self._halay.reduce(list(gradients), list(variables))
        if self._halay_share != 1:
            found = [g if g is None else keras.ops.multiply(g, self._halay_share) for g in found]
        return found

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        chosen = self._trainable_variables if trainable_variables is None else trainable_variables
        chosen, found = list(chosen), list(grads)
        if not self._halay_reduced:
            found = self._halay_reduce(found, chosen)
        self._halay_reduced = False
        return super().apply(  # type: ignore[misc]
            found, None if trainable_variables is None else chosen
        )

    def stateless_apply(
        self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        found = self._halay_reduce(grads, self._trainable_variables)
        self._halay_reduced = True
        try:
            return super().stateless_apply(  # type: ignore[misc]
                optimizer_variables, found, trainable_variables
            )
        finally:
            self._halay_reduced = False


class DistributedTape(Distributed):
    """On TensorFlow, for loops with a tape of their own."""

    def _compute_gradients(
        self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Horovod's: the reduced gradients with their variables, for apply_gradients() as they are.

        loss: a function, or a value that the tape has seen.
        """
        import tensorflow as tf

        variables = list(var_list() if callable(var_list) else var_list)
        if tape is None:
            tape = tf.GradientTape()
        plain = [one.value if isinstance(one, keras.Variable) else one for one in variables]
        if callable(loss):
            with tape:
                tape.watch(plain)
                loss = loss()
        gradients = tape.gradient(loss, plain, grad_loss)
        self._halay_reduced = True
        return list(zip(self._halay_reduce(gradients, variables), variables))


def _with_steps(optimizer: Any, steps: int) -> Any:
    """A copy that applies the mean of so many steps' gradients."""
    if isinstance(optimizer, _Scaling):
        inner = _with_steps(optimizer.inner_optimizer, steps)
        scales = (optimizer.initial_scale, optimizer.dynamic_growth_steps)
        return type(optimizer)(inner, *scales, name=optimizer.name)
    config: dict[str, Any] = optimizer.get_config()
    if config.get("gradient_accumulation_steps") not in (None, steps):
        raise ValueError(
            f"backward_passes_per_step={steps}, and the optimizer has gradient_accumulation_steps="
            f"{config['gradient_accumulation_steps']}: they are the same, give one"
        )
    return type(optimizer).from_config({**config, "gradient_accumulation_steps": steps})


def _home(kind: type) -> str:
    """The module that Keras writes into a saved model, so that it is found on every back end."""
    public = getattr(keras.optimizers, kind.__name__, None)
    return (
        "keras.optimizers" if public is not None and issubclass(kind, public) else kind.__module__
    )


def wrap(optimizer: Any, reducer: Any, steps: int, average: bool) -> Any:
    """An optimizer as this one, of a class of the same name: a saved model knows nothing of us.

    One that has variables, as from a saved model, is changed itself: its state stays.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"DistributedOptimizer: {type(optimizer).__name__} is no optimizer of Keras"
        )
    if isinstance(optimizer, Distributed):
        raise ValueError("DistributedOptimizer: the optimizer is one already")
    if steps > 1 and optimizer.built:
        raise ValueError(
            "DistributedOptimizer: the optimizer has its variables already; give it "
            "gradient_accumulation_steps when it is made, instead of backward_passes_per_step"
        )
    wrapped = optimizer
    if steps > 1:
        wrapped = _with_steps(optimizer, steps)
    elif not optimizer.built:
        wrapped = type(optimizer).from_config(optimizer.get_config())
    mixed = keras.config.dtype_policy().name == "mixed_float16"
    if mixed and not isinstance(wrapped, _Scaling):  # as compile() would do around ours
        wrapped = _Scaling(wrapped)
    base = type(wrapped)
    layer = DistributedTape if keras.backend.backend() == "tensorflow" else Distributed
    wrapped.__class__ = type(base.__name__, (layer, base), {"__module__": _home(base)})
    if steps > 1:  # one that applies in other steps does not meet it
        reducer.name = f"{reducer.name}_of_{steps}"
    wrapped._halay = reducer
    wrapped._halay_share = 1 if average else steps
    return wrapped
