# SPDX-License-Identifier: Apache-2.0
"""Model state, from one rank to all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

import torch

from .. import _session
from .._basics import rank
from .._objects import allgather_object, broadcast_object
from .ops import broadcast_async_, synchronize

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "hosts",
]

Params = Union[
    Mapping[str, torch.Tensor], Iterable[Union[torch.Tensor, tuple[Optional[str], torch.Tensor]]]
]


def _named(params: Params) -> list[tuple[str | None, torch.Tensor]]:
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise ValueError(
            f"invalid params of type {type(params).__name__}: give model.state_dict(), "
            "model.named_parameters() or a list of tensors"
        )
    if isinstance(params, Mapping):
        return sorted(params.items())
    return [p if isinstance(p, tuple) else (None, p) for p in params]


def broadcast_parameters(params: Params, root_rank: int) -> None:
    """Overwrites all ranks' tensors with those of root_rank.

    params: model.state_dict(), model.named_parameters(), or tensors in the same order on all
    ranks. Tensors that are not contiguous are sent through a copy.
    """
    out = []
    for name, tensor in _named(params):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"broadcast {name!r}: needs a torch.Tensor, not {type(tensor)}")
        target = tensor.detach()
        sent = target.contiguous()
        out.append((target, sent, broadcast_async_(sent, root_rank, name)))
    for target, sent, handle in out:
        synchronize(handle)
        if sent.data_ptr() != target.data_ptr():
            target.copy_(sent)


def hosts() -> list[str]:
    """The host of each rank. Every rank has to call it."""
    return [str(host) for host in allgather_object(_session.session().host)]


class _Slot:
    """Stands for a tensor in a pickled state."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype = tensor.shape, tensor.dtype


def _take_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A copy of value with a _Slot for each tensor; the tensors are appended in order."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().cpu().contiguous())
        return _Slot(tensors[-1])
    if isinstance(value, dict):
        return {key: _take_tensors(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_take_tensors(item, tensors) for item in value)
    return value


def _put_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The reverse: makes a tensor for each _Slot, and appends it."""
    if isinstance(value, _Slot):
        tensors.append(torch.empty(value.shape, dtype=value.dtype, device="cpu"))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _put_tensors(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_tensors(item, tensors) for item in value)
    return value


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives all ranks the optimizer state of root_rank: tensors, scalars and options.

    The other ranks need no state of their own: a checkpoint may be read on root_rank alone. Hence
    no step is faked to make one. What is left of that step: where there was no state, parameters
    without a gradient get zeros; sparse ones for SparseAdam and for model's sparse embeddings.
    """
    fresh = not optimizer.state
    tensors: list[torch.Tensor] = []
    at_root = rank() == root_rank
    skeleton = _take_tensors(optimizer.state_dict(), tensors) if at_root else None
    skeleton = broadcast_object(skeleton, root_rank)
    state = None if at_root else _put_tensors(skeleton, tensors)
    handles = [broadcast_async_(tensor, root_rank) for tensor in tensors]
    for handle in handles:
        synchronize(handle)
    if state is not None:
        optimizer.load_state_dict(state)
    if fresh:
        _zero_gradients(optimizer, model)


def _zero_gradients(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    modules = [] if model is None else model.modules()
    sparse = {id(m.weight) for m in modules if isinstance(m, embeddings) and m.sparse}
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        if not parameter.requires_grad or parameter.grad is not None:
            continue
        parameter.grad = torch.zeros_like(parameter)
        if isinstance(optimizer, torch.optim.SparseAdam) or id(parameter) in sparse:
            parameter.grad = parameter.grad.to_sparse(1)
