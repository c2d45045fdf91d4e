# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors, by name: ranks may submit in different orders.

The asynchronous forms return a handle for poll() and synchronize(). A tensor belongs to Halay
from the submission to the return of synchronize(): it must not be read or written in between.
The forms that wait and do not work in place take part in autograd, with Horovod's gradients: all
ranks' losses are averaged, except for op=Sum, where they are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _session
from .._objects import barrier
from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Adasum, Average, Max, Min, Product, Sum, choose_op
from .._tensors import outside_graph
from ._at_once import allreduce_at_once
from ._submit import (
    Reduction,
    check_gather,
    poll,
    submit_allgather,
    submit_allreduce,
    submit_broadcast,
    submit_group,
    synchronize,
)
from .compression import Compression, Compressor

__all__ = ["barrier", "poll", "synchronize"]

_NO_GRADIENT = {Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}


def wants_graph(tensors: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(t, torch.Tensor) and t.requires_grad for t in tensors
    )


def _as_list(tensors: Sequence[torch.Tensor], kind: str) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor) or len(tensors) == 0:
        raise ValueError(f"{kind}: needs a list of at least one tensor")
    return list(tensors)


# ---------------------------------------------------------------------------- allreduce


def _group_allreduce(
    tensors: list[torch.Tensor], name: str | None, how: Reduction, in_place: bool
) -> int:
    kind = "grouped_allreduce"
    for tensor in tensors:  # all or nothing: no tensor is submitted if one is refused
        how.checked(tensor, kind, name)
    return submit_group(
        kind,
        len(tensors),
        name,
        lambda i, own: submit_allreduce(
            tensors[i], tensors[i] if in_place else None, own, how, kind
        ),
        how.among,
    )


class _Allreduce(torch.autograd.Function):
    """Allreduces one tensor, or a group, with a gradient."""

    @staticmethod
    def forward(ctx: Any, name: str | None, how: Reduction, grouped: bool, *tensors: Any) -> Any:
        ctx.how, ctx.grouped = how, grouped
        if grouped:
            return tuple(synchronize(_group_allreduce(list(tensors), name, how, False)))
        return synchronize(submit_allreduce(tensors[0], None, name, how))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.how.op in _NO_GRADIENT:
            raise RuntimeError(
                f"allreduce: op {_NO_GRADIENT[ctx.how.op]} has no gradient here; use "
                "tensor.detach(), Average or Sum"
            )
        return (None, None, None, *_reduced(list(gradients), None, ctx.how, ctx.grouped))


def _reduced(
    tensors: list[torch.Tensor], name: str | None, how: Reduction, grouped: bool
) -> list[torch.Tensor]:
    if wants_graph(tensors):
        apply: Any = _Allreduce.apply
        found = apply(name, how, grouped, *tensors)
        return list(found) if grouped else [found]
    if grouped:
        results: list[torch.Tensor] = synchronize(_group_allreduce(tensors, name, how, False))
        return results
    return [synchronize(submit_allreduce(tensors[0], None, name, how))]


@outside_graph
def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a reduction over all ranks into a new tensor. Returns a handle."""
    how = Reduction(choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return submit_allreduce(tensor, None, name, how)


@outside_graph
def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The reduction of all ranks' tensors: shape and dtype are those of `tensor`.

    op: Average (the default), Sum, Adasum, Min, Max or Product. The scale factors multiply before
    and after the sum.
    """
    chosen = choose_op(op, average)
    if compression is Compression.none:
        found = allreduce_at_once(
            tensor, False, name, chosen, prescale_factor, postscale_factor, process_set
        )
        if found is not None:
            return found
    how = Reduction(chosen, prescale_factor, postscale_factor, process_set)
    members_of(process_set)
    compressed, context = compression.compress(tensor)
    (reduced,) = _reduced([compressed], name, how, grouped=False)
    whole: torch.Tensor = compression.decompress(reduced, context)
    return whole


@outside_graph
def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As allreduce_async(), in place."""
    how = Reduction(choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return submit_allreduce(tensor, tensor, name, how)


@outside_graph
def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As allreduce(), in place. Returns `tensor`."""
    chosen = choose_op(op, average)
    found = allreduce_at_once(
        tensor, True, name, chosen, prescale_factor, postscale_factor, process_set
    )
    if found is not None:
        return found
    how = Reduction(chosen, prescale_factor, postscale_factor, process_set)
    result: torch.Tensor = synchronize(submit_allreduce(tensor, tensor, name, how))
    return result


@outside_graph
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts the reductions of several tensors. One handle; its result is the list of theirs."""
    how = Reduction(choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return _group_allreduce(_as_list(tensors, "grouped_allreduce"), name, how, in_place=False)


@outside_graph
def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """allreduce() of each tensor; the i-th of all ranks belong together."""
    how = Reduction(choose_op(op, average), prescale_factor, postscale_factor, process_set)
    pairs = [compression.compress(t) for t in _as_list(tensors, "grouped_allreduce")]
    reduced = _reduced([compressed for compressed, _ in pairs], name, how, grouped=True)
    return [compression.decompress(r, context) for r, (_, context) in zip(reduced, pairs)]


@outside_graph
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As grouped_allreduce_async(), in place."""
    how = Reduction(choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return _group_allreduce(_as_list(tensors, "grouped_allreduce"), name, how, in_place=True)


@outside_graph
def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """As grouped_allreduce(), in place. Returns the tensors."""
    how = Reduction(choose_op(op, average), prescale_factor, postscale_factor, process_set)
    results: list[torch.Tensor] = synchronize(
        _group_allreduce(_as_list(tensors, "grouped_allreduce"), name, how, in_place=True)
    )
    return results


@outside_graph
def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Starts a reduction of a sparse COO tensor: an allgather of its indices and of its values.

    Returns a function that waits and gives the sum or average, sparse, not coalesced. All ranks
    have to bring a sparse tensor; it may be empty.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        raise TypeError("sparse_allreduce: needs a torch.Tensor of layout torch.sparse_coo")
    if op not in (Average, Sum):
        raise ValueError("sparse_allreduce: takes op Average or Sum")
    nranks, shape = members_of(process_set).size, tensor.shape
    found = tensor.detach().coalesce()
    index_name, value_name = (
        None if name is None else f"{name}.{part}" for part in ("indices", "values")
    )
    handles = [
        _gather(found.indices().t(), index_name, process_set, "sparse_allreduce"),
        _gather(found.values(), value_name, process_set, "sparse_allreduce"),
    ]

    def wait() -> torch.Tensor:
        indices, values = _session.session().wait_all(handles)
        if op == Average:
            values = values / nranks
        return torch.sparse_coo_tensor(indices.t(), values, shape)

    return wait


# ---------------------------------------------------------------------------- allgather


def _gather(
    tensor: torch.Tensor, name: str | None, among: ProcessSet, kind: str = "allgather"
) -> int:
    return submit_allgather(tensor, name, among, lambda out, _rows: out, kind)


def _gather_rows(tensor: torch.Tensor, name: str | None, among: ProcessSet, kind: str) -> int:
    return submit_allgather(tensor, name, among, lambda out, rows: (out, rows), kind)


def _group_gather(tensors: list[torch.Tensor], name: str | None, among: ProcessSet) -> int:
    kind = "grouped_allgather"
    members_of(among)
    for tensor in tensors:
        check_gather(tensor, kind, name)
    return submit_group(
        kind,
        len(tensors),
        name,
        lambda i, own: _gather_rows(tensors[i], own, among, kind),
        among,
    )


class _Allgather(torch.autograd.Function):
    """Allgathers one tensor, or a group, with a gradient."""

    @staticmethod
    def forward(ctx: Any, name: str | None, among: ProcessSet, grouped: bool, *tensors: Any) -> Any:
        ctx.among, ctx.grouped = among, grouped
        if grouped:
            found = synchronize(_group_gather(list(tensors), name, among))
        else:
            found = [synchronize(_gather_rows(tensors[0], name, among, "allgather"))]
        ctx.rows = [rows for _, rows in found]
        gathered = tuple(out for out, _ in found)
        return gathered if grouped else gathered[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        how = Reduction(Average, 1.0, 1.0, ctx.among)
        me = members_of(ctx.among).rank
        assert me is not None  # it has taken part in the forward pass
        own = [
            torch.split(reduced, rows)[me]
            for reduced, rows in zip(_reduced(list(gradients), None, how, ctx.grouped), ctx.rows)
        ]
        return (None, None, None, *own)


@outside_graph
def allgather_async(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allgather. Returns a handle."""
    return _gather(tensor, name, process_set)


@outside_graph
def allgather(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """All ranks' tensors one after the other along the first dimension, which may differ."""
    if wants_graph([tensor]):
        apply: Any = _Allgather.apply
        joined: torch.Tensor = apply(name, process_set, False, tensor)
        return joined
    result: torch.Tensor = synchronize(_gather(tensor, name, process_set))
    return result


@outside_graph
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts allgathers of several tensors. One handle; its result is the list of theirs."""
    handle = _group_gather(_as_list(tensors, "grouped_allgather"), name, process_set)
    return _session.session().join([handle], lambda found: [out for out, _ in found[0]])


@outside_graph
def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """allgather() of each tensor; the i-th of all ranks belong together."""
    listed = _as_list(tensors, "grouped_allgather")
    if wants_graph(listed):
        apply: Any = _Allgather.apply
        return list(apply(name, process_set, True, *listed))
    results: list[torch.Tensor] = synchronize(grouped_allgather_async(listed, name, process_set))
    return results


# ---------------------------------------------------------------------------- broadcast


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, root_rank: int, name: str | None, among: ProcessSet) -> Any:
        ctx.root_rank, ctx.among = root_rank, among
        return synchronize(submit_broadcast(tensor, None, root_rank, name, among))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (mean,) = _reduced([gradient], None, Reduction(Average, 1.0, 1.0, ctx.among), False)
        at_root = _session.session().rank == ctx.root_rank
        return (mean if at_root else torch.zeros_like(mean)), None, None, None


@outside_graph
def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast into a new tensor. Returns a handle."""
    return submit_broadcast(tensor, None, root_rank, name, process_set)


@outside_graph
def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The tensor of rank root_rank; shapes and dtypes are equal on all ranks."""
    if wants_graph([tensor]):
        apply: Any = _Broadcast.apply
        sent: torch.Tensor = apply(tensor, root_rank, name, process_set)
        return sent
    result: torch.Tensor = synchronize(submit_broadcast(tensor, None, root_rank, name, process_set))
    return result


@outside_graph
def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As broadcast_async(), in place."""
    return submit_broadcast(tensor, tensor, root_rank, name, process_set)


@outside_graph
def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As broadcast(), in place. Returns `tensor`."""
    result: torch.Tensor = synchronize(
        submit_broadcast(tensor, tensor, root_rank, name, process_set)
    )
    return result


@outside_graph
def join(device: int = -1) -> int:
    """Says that this rank has no more data, waits for all to say so, and returns the last to.

    Meanwhile this rank gives zeros to the others' allreduces with op Average and Sum, and counts
    in the average; their barriers go on too. Any other operation raises an error on them. device
    is Horovod's, and changes nothing.
    """
    return _session.session().join_all()
