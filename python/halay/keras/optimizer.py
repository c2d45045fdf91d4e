# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer of Keras whose gradients are reduced over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Average
from ._which import BACKEND, LEGACY, hvd, keras

Compression = hvd.Compression


class Reducer:
    """How gradients are reduced, on JAX and torch. local: variables whose gradients stay here."""

    def __init__(
        self,
        name: str,
        compression: Any,
        op: int,
        predivide: float,
        process_set: ProcessSet,
        scale_local: bool,
    ) -> None:
        self.name, self.compression, self.op = name, compression, op
        self.predivide, self.process_set, self.scale_local = predivide, process_set, scale_local
        self.local: list[Any] = []

    def register_local(self, variable: Any) -> None:
        self.local.append(variable)

    def reduce(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """One for each; None stays None."""
        found = list(gradients)
        if members_of(self.process_set).rank is None:
            return found
        own = [any(variable is one for one in self.local) for variable in variables]
        places = [i for i, g in enumerate(found) if g is not None and not own[i]]
        for i, gradient in zip(places, self._reduced([found[i] for i in places])):
            found[i] = gradient
        if self.scale_local:
            size = members_of(self.process_set).size
            for i, gradient in enumerate(found):
                if own[i] and gradient is not None:
                    found[i] = gradient / size
        return found

    def _reduced(self, gradients: list[Any]) -> list[Any]:
        how = {
            "op": self.op,
            "prescale_factor": 1.0 / self.predivide,
            "postscale_factor": self.predivide,
            "process_set": self.process_set,
        }
        if BACKEND == "jax":
            return list(hvd.allreduce_tree(gradients, None, compression=self.compression, **how))
        sent, contexts = [], []
        for gradient in gradients:
            short, context = self.compression.compress(gradient)
            sent.append(short)
            contexts.append(context)
        handles = [
            hvd.allreduce_async(one, name=f"{self.name}.{i}", **how) for i, one in enumerate(sent)
        ]
        return [
            self.compression.decompress(hvd.synchronize(handle), context)
            for handle, context in zip(handles, contexts)
        ]


class Distributed:
    """What is added to the optimizer's own class. Everything that applies gradients comes through
    apply() or, on JAX, stateless_apply(), which calls it or does not."""

    _halay: Any
    _halay_reduced = False  # what apply() is given next

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable stays this rank's own."""
        self._halay.register_local(var)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        chosen = self._trainable_variables if trainable_variables is None else trainable_variables
        chosen, found = list(chosen), list(grads)
        if not self._halay_reduced:
            found = self._halay.reduce(found, chosen)
        self._halay_reduced = False
        return super().apply(  # type: ignore[misc]
            found, None if trainable_variables is None else chosen
        )

    def stateless_apply(
        self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        found = self._halay.reduce(list(grads), self._trainable_variables)
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
        return list(zip(self._halay.reduce(gradients, variables), variables))


def _reducer(name: str, options: dict[str, Any]) -> Any:
    if BACKEND != "tensorflow":
        return Reducer(
            name,
            options["compression"],
            options["op"],
            options["gradient_predivide_factor"],
            options["process_set"],
            options["scale_local_gradients"],
        )
    from ..tensorflow.gradients import Reducer as OfTensorFlow
    from ..tensorflow.gradients import checked_groups

    return OfTensorFlow(
        name,
        options["compression"],
        options["sparse_as_dense"],
        options["op"],
        options["gradient_predivide_factor"],
        checked_groups(options["groups"], options["num_groups"]),
        options["process_set"],
        options["scale_local_gradients"],
    )


def _with_steps(optimizer: Any, steps: int) -> dict[str, Any]:
    config: dict[str, Any] = optimizer.get_config()
    if steps == 1:
        return config
    if config.get("gradient_accumulation_steps") not in (None, steps):
        raise ValueError(
            f"backward_passes_per_step={steps}, and the optimizer has gradient_accumulation_steps="
            f"{config['gradient_accumulation_steps']}: they are the same, give one"
        )
    return {**config, "gradient_accumulation_steps": steps}


def _home(kind: type) -> str:
    """The module that Keras writes into a saved model, so that it is found on every back end."""
    public = getattr(keras.optimizers, kind.__name__, None)
    return (
        "keras.optimizers" if public is not None and issubclass(kind, public) else kind.__module__
    )


def _wrap(optimizer: Any, reducer: Any, steps: int) -> Any:
    """An optimizer as this one, of a class of the same name: a saved model knows nothing of us."""
    kind = type(optimizer)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"DistributedOptimizer: {kind.__name__} is no optimizer of Keras")
    if isinstance(optimizer, Distributed):
        raise ValueError("DistributedOptimizer: the optimizer is one already")
    scaling: Any = keras.optimizers.LossScaleOptimizer
    if keras.config.dtype_policy().name == "mixed_float16" and not isinstance(optimizer, scaling):
        # As compile() would do around ours: then a rank's infinities are seen on that rank alone.
        optimizer = scaling(optimizer)
        kind = scaling
    layer = DistributedTape if BACKEND == "tensorflow" else Distributed
    made = type(kind.__name__, (layer, kind), {"__module__": _home(kind)})
    if optimizer.built:  # as from a saved model: its state stays
        if steps > 1:
            raise ValueError(
                "DistributedOptimizer: the optimizer has its variables already; give it "
                "gradient_accumulation_steps when it is made, instead of backward_passes_per_step"
            )
        wrapped = optimizer
        wrapped.__class__ = made
    else:
        wrapped = made.from_config(_with_steps(optimizer, steps))  # type: ignore[attr-defined]
    wrapped._halay = reducer
    return wrapped


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The optimizer, with gradients that are reduced over all ranks before they are applied.

    It is saved with a model as what it was, and is loaded where Halay is not there. One that has
    been in use already, as that of a loaded model, is changed itself, and keeps its state.
    backward_passes_per_step: Keras's own gradient_accumulation_steps, which averages (the older
    Keras adds up, unless average_aggregated_gradients). sparse_as_dense, groups: TensorFlow only.
    device_dense, device_sparse are Horovod's, and change nothing.
    """
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: at least 1")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op Average")
    options = {
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "gradient_predivide_factor": gradient_predivide_factor,
        "op": op,
        "num_groups": num_groups,
        "groups": groups,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    reducer = _reducer(name or f"Distributed{type(optimizer).__name__}", options)
    if LEGACY:
        from .legacy import wrap

        return wrap(optimizer, reducer, backward_passes_per_step, average_aggregated_gradients)
    return _wrap(optimizer, reducer, backward_passes_per_step)


def PartialDistributedOptimizer(
    optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any
) -> Any:
    """As DistributedOptimizer(); gradients of local_layers, layers of Keras, stay this rank's."""
    made = DistributedOptimizer(optimizer, *args, **kwargs)
    layers: Iterable[Any] = (
        [local_layers] if hasattr(local_layers, "trainable_weights") else (local_layers or ())
    )
    for layer in layers:
        for variable in layer.trainable_weights:
            made.register_local_var(variable)
    return made
