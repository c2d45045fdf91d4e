# SPDX-License-Identifier: Apache-2.0
"""Horovod's optimizer, trainer and broadcast of parameters for MXNet."""

from __future__ import annotations

import types
import warnings
from typing import Any

import mxnet as mx
import numpy as np

from .. import _session
from .._compression import Cast, NoneCompressor
from .._core import lib
from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Average
from ._arrays import Reduction
from .ops import broadcast_

_Optimizer: Any = mx.optimizer.Optimizer
_Trainer: Any = mx.gluon.Trainer


class FP16Compressor(Cast):
    """Sends float16."""

    wire = "float16"

    @classmethod
    def is_long(cls, tensor: Any) -> bool:
        return str(np.dtype(tensor.dtype)) in ("float32", "float64")

    @classmethod
    def cast(cls, tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype, copy=False)


class Compression:
    """What `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor


class _Gradients:
    """How they are averaged: all that are given at once, in place."""

    def __init__(self, predivide: float, among: ProcessSet, compression: Any) -> None:
        self.predivide, self.among, self.compression = predivide, among, compression

    def average(self, gradients: list[tuple[str, Any]]) -> None:
        """Of (name, NDArray); nothing on ranks that are not in the process set."""
        members = members_of(self.among)
        if members.size == 1 or members.rank is None:
            return
        how = Reduction(Average, 1.0 / self.predivide, self.predivide, self.among)
        of, handles, sent = _session.session(), [], []
        for name, gradient in gradients:
            short, context = self.compression.compress(gradient)
            sent.append((gradient, short, context))
            call = lib.halay_trainer_allreduce_shaped
            handles.append(how.submit(call, "allreduce", name, short, short))
        of.wait_all(handles)
        for gradient, short, context in sent:
            if short is not gradient:
                gradient[:] = self.compression.decompress(short, context)


class DistributedOptimizer(_Optimizer):  # type: ignore[misc]
    """An optimizer, with gradients that are averaged over all ranks before it updates."""

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        self._optimizer = optimizer
        self._gradients = _Gradients(gradient_predivide_factor, process_set, Compression.none)

    def __getattr__(self, item: str) -> Any:
        return getattr(self._optimizer, item)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def _average(self, index: Any, grad: Any) -> None:
        many = isinstance(index, (tuple, list))
        pairs = zip(index, grad) if many else [(index, grad)]
        self._gradients.average([(str(i), one) for i, one in pairs])

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._average(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)


class DistributedTrainer(_Trainer):  # type: ignore[misc]
    """Gluon's Trainer, with gradients that are averaged over all ranks.

    prefix: of the gradients' names, where several trainers are in use. num_groups is Horovod's, and
    changes nothing: all gradients go at once.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            optimizer = optimizer._optimizer
            warnings.warn(
                "DistributedTrainer takes the optimizer itself: that of the DistributedOptimizer "
                "is used",
                stacklevel=2,
            )
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._prefix = prefix or ""
        self._gradients = _Gradients(gradient_predivide_factor, process_set, compression)

    def _allreduce_grads(self) -> None:
        self._gradients.average(
            [
                (f"{self._prefix}{i}", param.list_grad()[0])
                for i, param in enumerate(self._params)
                if param.grad_req != "null"
            ]
        )


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Gives all ranks the values of root_rank.

    params: a dict of NDArrays or Parameters, or a ParameterDict. A Parameter that has no values yet
    is broadcast when it gets them.
    """
    if not hasattr(params, "items"):
        raise ValueError(f"broadcast_parameters: no parameters are in a {type(params).__name__}")
    for key, value in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        if not isinstance(value, mx.gluon.parameter.Parameter):
            broadcast_(value, root_rank, name=name)
            continue
        try:
            broadcast_(value.data(), root_rank, name=name)
        except mx.gluon.parameter.DeferredInitializationError:
            value._init_impl = types.MethodType(_then_broadcast(value, root_rank, name), value)


def _then_broadcast(parameter: Any, root_rank: int, name: str) -> Any:
    before = parameter._init_impl

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        before(*args, **kwargs)
        broadcast_(self.data(), root_rank, name=name)

    return initialize
