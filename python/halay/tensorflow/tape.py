# SPDX-License-Identifier: Apache-2.0
"""tf.GradientTape whose gradients are reduced over all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._process_sets import ProcessSet, global_process_set
from .._reductions import Average, check_reduction
from .compression import Compression, Compressor
from .gradients import Groups, Reducer, checked_groups


class _Distributed:
    """What is added to the tape's own class."""

    _halay: Reducer

    def register_local_source(self, source: Any) -> None:
        """The gradient of this variable stays this rank's own."""
        self._halay.register_local(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **how: Any,
    ) -> Any:
        """As tf.GradientTape.gradient(), reduced over all ranks."""
        found = super().gradient(target, sources, output_gradients, **how)  # type: ignore[misc]
        flat = self._halay.reduce(
            tf.nest.flatten(found), tf.nest.flatten(sources), use_generic_names
        )
        return tf.nest.pack_sequence_as(sources, flat)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[Any], list[Any]]:
        """Pairs of source and gradient: of local sources, and of the others."""
        gradients = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(sources, gradients))
        local = [pair for pair in pairs if self._halay.is_local(pair[0])]
        return local, [pair for pair in pairs if not self._halay.is_local(pair[0])]


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape that goes on where gradtape is, and whose gradient() is reduced over all ranks.

    sparse_as_dense: tf.IndexedSlices are sent as dense tensors. gradient_predivide_factor: with op
    Average, that much of the division comes before the sum. groups: how many, or lists of
    variables, to reduce at once. scale_local_gradients: gradients of local sources are divided by
    the number of ranks, as the others are.
    """
    check_reduction(op, gradient_predivide_factor)
    kind = type(gradtape)
    made: Any = type(kind.__name__, (_Distributed, kind), {})
    tape = made.__new__(made)
    tape.__dict__.update(gradtape.__dict__)
    tape._halay = Reducer(
        "DistributedGradientTape",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        checked_groups(groups, num_groups),
        process_set,
        scale_local_gradients,
    )
    return tape


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As DistributedGradientTape(); the gradients of local_layers stay this rank's own.

    local_layers: a layer of Keras, or a list of them.
    """
    if local_layers is None:
        local_layers = []
    layers = list(local_layers) if isinstance(local_layers, (list, tuple)) else [local_layers]
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise ValueError("local_layers: a layer of Keras, or a list of them")
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
