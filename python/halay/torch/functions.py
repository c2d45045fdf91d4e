# SPDX-License-Identifier: Apache-2.0
"""Model state and Python objects, from one rank to all or from all to all."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

import torch

from .. import _session
from .._core import error, ffi, lib
from ._tensors import address
from .basics import rank
from .ops import allgather_rows, broadcast_, broadcast_async_, synchronize
from .process_sets import ProcessSet, global_process_set

try:
    from cloudpickle import dumps as _dumps  # type: ignore[import-untyped,unused-ignore]
except ImportError:
    _dumps = pickle.dumps

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


def _to_bytes(obj: object) -> torch.Tensor:
    return torch.frombuffer(bytearray(_dumps(obj)), dtype=torch.uint8)


def _from_bytes(tensor: torch.Tensor) -> Any:
    return pickle.loads(ffi.buffer(address(tensor), tensor.numel()))


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of rank root_rank, pickled; other ranks' obj is ignored."""
    length = torch.zeros(1, dtype=torch.int64, device="cpu")
    payload, failure = torch.empty(0, dtype=torch.uint8, device="cpu"), None
    prefix = None if name is None else f"{name}.object"
    if rank() == root_rank:
        try:
            payload = _to_bytes(obj)
            length[0] = payload.numel()
        except Exception as cause:  # the others wait for a length: tell them first
            failure = cause
            length[0] = -1
    broadcast_(length, root_rank, None if prefix is None else f"{prefix}.length", process_set)
    if failure is not None:
        raise failure
    if int(length) < 0:
        raise error(lib.HALAY_EINVAL, f"broadcast_object: rank {root_rank} could not pickle it")
    if rank() != root_rank:
        payload = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    broadcast_(payload, root_rank, prefix, process_set)
    return obj if rank() == root_rank else _from_bytes(payload)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks, pickled."""
    own_name = None if name is None else f"{name}.object"
    gathered, rows = allgather_rows(_to_bytes(obj), own_name, process_set)
    return [_from_bytes(part) for part in torch.split(gathered, rows)]


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
