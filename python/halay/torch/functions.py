# SPDX-License-Identifier: Apache-2.0
"""Model state, from one rank to all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Optional, Union

import torch

from .. import _session, _torch_state
from .._basics import rank
from .._objects import allgather_object, broadcast_object
from .._tensors import TYPES, is_no_memory, plain
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


def _plain(name: str | None, tensor: torch.Tensor) -> Iterator[tuple[str | None, torch.Tensor]]:
    """The tensor, or those that a subclass is made of, such as one of few bits an element."""
    inner = getattr(tensor, "__tensor_flatten__", None)
    if inner is None or is_no_memory(tensor):
        yield name, tensor
        return
    for attribute in inner()[0]:
        own = None if name is None else f"{name}.{attribute}"
        yield from _plain(own, getattr(tensor, attribute))


def broadcast_parameters(params: Params, root_rank: int) -> None:
    """Overwrites all ranks' tensors with those of root_rank.

    params: model.state_dict(), model.named_parameters(), or tensors in the same order on all
    ranks. Tensors that are not contiguous are sent through a copy; those of types that nothing is
    reduced in, such as float8, as bytes.
    """
    named = _named(params)
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"broadcast {name!r}: needs a torch.Tensor, not {type(tensor)}; send other values "
                "by hvd.broadcast_object(), and set them by model.load_state_dict(strict=False)"
            )
        if is_no_memory(tensor):
            plain(tensor, f"broadcast {name!r}")
    out = []
    for name, tensor in (piece for pair in named for piece in _plain(*pair)):
        target = tensor.detach()
        sent = target.contiguous()
        wire = sent if sent.dtype in TYPES else sent.reshape(-1).view(torch.uint8)
        out.append((target, sent, broadcast_async_(wire, root_rank, name)))
    for target, sent, handle in out:
        synchronize(handle)
        if sent.data_ptr() != target.data_ptr():
            target.copy_(sent)


def hosts() -> list[str]:
    """The host of each rank. Every rank has to call it."""
    return [str(host) for host in allgather_object(_session.session().host)]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives all ranks the optimizer state of root_rank: tensors, scalars and options.

    Types, nesting and what is shared are those of root_rank, whatever the parameters' types; no
    load_state_dict() casts them. The other ranks need no state of their own: a checkpoint may be
    read on root_rank alone. Hence no step is faked to make one. What is left of that step: where
    there was no state, parameters without a gradient get zeros; sparse ones for SparseAdam and for
    model's sparse embeddings.
    """
    fresh = not optimizer.state
    at_root = rank() == root_rank
    packed, failure = None, None
    if at_root:
        try:
            packed = _torch_state.pack(optimizer)
        except Exception as cause:  # the others wait for it: they are told
            failure = cause
    sent = broadcast_object(None if packed is None else packed.head(), root_rank)
    if sent is not None:
        failure = _fill(optimizer, packed or sent[0], sent[1], root_rank)
    for who, text in enumerate(allgather_object(_said(failure))):
        if text is not None:
            raise ValueError(f"broadcast_optimizer_state: rank {who}: {text}") from failure
    if fresh:
        _zero_gradients(optimizer, model)


def _said(failure: Exception | None) -> str | None:
    return None if failure is None else f"{type(failure).__name__}: {failure}"


def _fill(
    optimizer: torch.optim.Optimizer, packed: _torch_state.Packed, sizes: list[int], root_rank: int
) -> Exception | None:
    """Broadcasts the blocks, so many bytes each, and puts all in where there are none yet."""
    at_root = rank() == root_rank
    blocks = [block.cpu() for block in packed.blocks]
    if not at_root:
        blocks = [torch.empty(size, dtype=torch.uint8, device="cpu") for size in sizes]
    _session.session().wait_all([broadcast_async_(block, root_rank) for block in blocks])
    if at_root:
        return None
    packed.blocks = blocks
    try:
        _torch_state.put(packed, optimizer)
    except Exception as failure:
        return failure
    return None


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
