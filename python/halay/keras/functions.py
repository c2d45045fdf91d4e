# SPDX-License-Identifier: Apache-2.0
"""Collectives on values, outside of a model's step, and models from files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._reductions import Average, Sum
from ._which import LEGACY, hvd, keras, tensor_of
from .optimizer import Compression, DistributedOptimizer


def _op(op: int | None, average: bool | None) -> int:
    if average is not None and op is not None:
        raise ValueError("give either op or average, not both; average is the old spelling")
    if op is None:
        return Average if average in (None, True) else Sum
    return op


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """The reduction of all ranks' values, as a tensor of the back end."""
    return hvd.allreduce(
        tensor_of(value),
        name=name,
        op=_op(op, average),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """All ranks' values one after the other along the first dimension."""
    return hvd.allgather(tensor_of(value), name=name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of rank root_rank."""
    return hvd.broadcast(tensor_of(value), root_rank, name=name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's rows of the reduction."""
    return hvd.reducescatter(tensor_of(value), name=name, op=op)


def broadcast_global_variables(root_rank: int) -> None:
    """Refused: today's TensorFlow has no collection of all variables."""
    raise NotImplementedError(
        "broadcast_global_variables: there are no global variables any more; use "
        "callbacks.BroadcastGlobalVariablesCallback(root_rank) in fit()"
    )


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
    safe_mode: bool = True,
) -> Any:
    """A saved model, with its optimizer, whose state is kept, made a DistributedOptimizer().

    custom_optimizers: classes of optimizers that Keras does not know. legacy_opts is Horovod's, and
    changes nothing. safe_mode: of Keras's own load_model().
    """
    objects = {one.__name__: one for one in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects, safe_mode=safe_mode)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError(f"load_model: {filepath} was saved without an optimizer: compile it first")
    made = DistributedOptimizer(optimizer, compression=compression)
    if made is not optimizer:
        model.optimizer = made
    if LEGACY:
        model.train_function = None  # it may have the other one inside
    return model
