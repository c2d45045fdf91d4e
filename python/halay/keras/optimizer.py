# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer of Keras whose gradients are reduced over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Average, check_reduction
from ._which import BACKEND, hvd

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
        scales = (1.0 / self.predivide, self.predivide)
        if BACKEND == "jax":
            from ..jax.tree import reduce_tree

            how = (self.op, scales, self.compression, self.process_set)
            return list(reduce_tree(gradients, self.name, True, *how))
        if not gradients:
            return []
        # How many there are is in the name: another model's do not meet these.
        name = f"{self.name}.{len(gradients)}"
        return list(
            hvd.grouped_allreduce(
                gradients,
                name=name,
                op=self.op,
                prescale_factor=scales[0],
                postscale_factor=scales[1],
                compression=self.compression,
                process_set=self.process_set,
            )
        )


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
    backward_passes_per_step: so many steps' gradients are added up, or averaged if
    average_aggregated_gradients, before they are applied; Keras 3 reduces in each step.
    sparse_as_dense, groups: TensorFlow only. device_dense, device_sparse are Horovod's, and change
    nothing.
    """
    if BACKEND == "tensorflow":
        made: Any = hvd.DistributedOptimizer(
            optimizer,
            name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            backward_passes_per_step=backward_passes_per_step,
            op=op,
            gradient_predivide_factor=gradient_predivide_factor,
            average_aggregated_gradients=average_aggregated_gradients,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
        return made
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: at least 1")
    check_reduction(op, gradient_predivide_factor)
    reducer = Reducer(
        name or f"Distributed{type(optimizer).__name__}",
        compression,
        op,
        gradient_predivide_factor,
        process_set,
        scale_local_gradients,
    )
    from .._keras3 import wrap

    return wrap(optimizer, reducer, backward_passes_per_step, average_aggregated_gradients)


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
