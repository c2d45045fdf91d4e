# SPDX-License-Identifier: Apache-2.0
"""Reduces the gradients of a step, for tapes and optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import tensorflow as tf

from .. import _session
from .._core import program
from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Adasum, Average
from . import _submit
from .compression import Compression, Compressor
from .ops import allreduce, grouped_allreduce

Groups = Union[int, Sequence[Sequence[Any]], None]


def key_of(variable: Any) -> Any:
    """What tells variables apart; they have no hash."""
    return variable.ref() if hasattr(variable, "ref") else id(variable)


def checked_groups(groups: Groups, num_groups: int) -> Groups:
    """groups, or its old spelling."""
    if num_groups != 0:
        warnings.warn(
            "num_groups is the old spelling; use groups",
            DeprecationWarning,
            stacklevel=program()[1],
        )
        groups = num_groups if groups is None else groups
    if isinstance(groups, int) and groups <= 0:
        raise ValueError("groups: a positive number, or a list of lists of variables")
    return groups


@dataclass
class Reducer:
    """How gradients are reduced. local: variables whose gradients stay this rank's own."""

    name: str
    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: int = Average
    gradient_predivide_factor: float = 1.0
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        self._local: dict[Any, Any] = {}

    def register_local(self, variable: Any) -> None:
        """Its gradient is not reduced, but divided by the number of ranks if they are averaged."""
        self._local[key_of(variable)] = variable  # kept: so that its id is not another's

    def is_local(self, variable: Any) -> bool:
        return key_of(variable) in self._local

    def reduce(
        self, gradients: Sequence[Any], variables: Sequence[Any], use_generic_names: bool = False
    ) -> list[Any]:
        """One for each; None stays None."""
        results = [self._dense(gradient) for gradient in gradients]
        own = [v is not None and self.is_local(v) for v in variables]
        places = [i for i, gradient in enumerate(results) if gradient is not None and not own[i]]
        if places and members_of(self.process_set).rank is not None:
            # How many variables there are is in the names: another model's do not meet these.
            with tf.name_scope(f"{self.name}_Allreduce_{len(own) - sum(own)}"):
                reduced = self._reduce(
                    [results[i] for i in places], [variables[i] for i in places], use_generic_names
                )
            for place, gradient in zip(places, reduced):
                results[place] = gradient
        if self.scale_local_gradients:
            for i, gradient in enumerate(results):
                if own[i] and gradient is not None:
                    results[i] = self._shared(gradient)
        return results

    def _dense(self, gradient: Any) -> Any:
        if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
        return gradient

    def _shared(self, gradient: Any) -> Any:
        if _session.session().elastic:
            size = _submit.ask(_submit.ASK_SIZE, _submit.number_of(self.process_set))
        else:
            size = tf.constant(members_of(self.process_set).size)
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / tf.cast(size, gradient.values.dtype)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(size, gradient.dtype)

    def _how(self) -> dict[str, Any]:
        how: dict[str, Any] = {
            "op": self.op,
            "compression": self.compression,
            "process_set": self.process_set,
        }
        if self.op == Average and self.gradient_predivide_factor != 1.0:
            how["prescale_factor"] = 1.0 / self.gradient_predivide_factor
            how["postscale_factor"] = self.gradient_predivide_factor
        return how

    def _reduce(
        self, gradients: list[Any], variables: list[Any], use_generic_names: bool
    ) -> list[Any]:
        how = self._how()
        results: list[Any] = [None] * len(gradients)
        for number, places in enumerate(self._split(gradients, variables)):
            name = f"grad_{number}" if use_generic_names else None
            some = [gradients[i] for i in places]
            if len(some) == 1:
                reduced = [
                    allreduce(some[0], name=name, ignore_name_scope=use_generic_names, **how)
                ]
            else:
                reduced = grouped_allreduce(
                    some, name=name, ignore_name_scope=use_generic_names, **how
                )
            for place, one in zip(places, reduced):
                results[place] = one
        return results

    def _split(self, gradients: list[Any], variables: list[Any]) -> list[list[int]]:
        """Which ones are one operation. Eagerly all are, for nothing else waits meanwhile."""
        count = len(gradients)
        if self.groups is None:
            eager = tf.executing_eagerly() and self.op != Adasum
            return [list(range(count))] if eager else [[i] for i in range(count)]
        if isinstance(self.groups, int):
            number = min(self.groups, count)
            ends = [count * i // number for i in range(number + 1)]
            return [list(range(begin, end)) for begin, end in zip(ends, ends[1:])]
        left = {key_of(variable): i for i, variable in enumerate(variables)}
        parts = []
        for group in self.groups:
            keys = [key_of(variable) for variable in group]
            parts.append([left.pop(key) for key in keys if key in left])
        return [part for part in [*parts, *([i] for i in left.values())] if part]
