# SPDX-License-Identifier: Apache-2.0
"""alltoall and reducescatter, by name, in any order on different ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Union

import torch

from .. import _session
from .._core import lib
from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Adasum, Average, Sum, choose_op
from .._tensors import outside_graph
from ..errors import InvalidArgument
from ._submit import (
    Reduction,
    check_gather,
    submit_alltoall,
    submit_group,
    submit_reducescatter,
    synchronize,
)
from ._tensors import describe
from .compression import Compression, Compressor
from .ops import allgather, grouped_allgather, wants_graph

Splits = Union[torch.Tensor, Sequence[int], None]


def _wrong(what: str) -> InvalidArgument:
    open_session = _session.session()
    return InvalidArgument(
        lib.HALAY_EINVAL, "HALAY_EINVAL", what, open_session.rank, open_session.host
    )


def _checked_splits(tensor: torch.Tensor, splits: Splits, nranks: int, what: str) -> list[int]:
    """How many rows go to each rank."""
    nrows = tensor.shape[0]
    if splits is None or (isinstance(splits, torch.Tensor) and splits.numel() == 0):
        if nrows % nranks != 0:
            raise _wrong(
                f"{what}: its {nrows} rows cannot be dealt out evenly to {nranks} ranks; "
                "give splits"
            )
        return [nrows // nranks] * nranks
    if isinstance(splits, torch.Tensor) and (splits.dim() != 1 or splits.is_floating_point()):
        raise _wrong(f"{what}: splits must be a list of integers, not {splits!r}")
    found = [int(one) for one in splits]
    if len(found) != nranks or min(found) < 0:
        raise _wrong(
            f"{what}: splits must have one number, not negative, for each of {nranks} ranks, "
            f"not {found}"
        )
    if sum(found) > nrows:
        raise _wrong(f"{what}: splits of {sum(found)} rows in all, the tensor has {nrows}: {found}")
    return found


def _submit_alltoall(
    tensor: torch.Tensor, splits: Splits, name: str | None, among: ProcessSet
) -> int:
    """Its result: the rows for this rank, and how many each rank had for it."""
    members = members_of(among)
    check_gather(tensor, "alltoall", name)
    what = describe(tensor, "alltoall", name)
    own = _checked_splits(tensor, splits, members.size, what)

    def received(out: torch.Tensor, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return out, torch.tensor(rows, dtype=torch.int32, device="cpu")

    return submit_alltoall(tensor, own, name, among, received)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Splits, name: Any, among: ProcessSet) -> Any:
        out, received = synchronize(_submit_alltoall(tensor, splits, name, among))
        ctx.nrows, ctx.received, ctx.among = tensor.shape[0], received, among
        ctx.mark_non_differentiable(received)
        return out, received

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        back, _ = _alltoall(gradients[0], ctx.received, None, ctx.among)
        if back.shape[0] < ctx.nrows:  # rows that went to nobody
            rest = back.new_zeros((ctx.nrows - back.shape[0], *back.shape[1:]))
            back = torch.cat([back, rest])
        return back, None, None, None


def _alltoall(
    tensor: torch.Tensor, splits: Splits, name: str | None, among: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    apply: Any = _Alltoall.apply
    if wants_graph([tensor]):
        out, received = apply(tensor, splits, name, among)
    else:
        out, received = synchronize(_submit_alltoall(tensor, splits, name, among))
    return out, received


@outside_graph
def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall. Returns a handle, whose result is that of alltoall()."""
    handle = _submit_alltoall(tensor, splits, name, process_set)
    if splits is not None:
        return handle
    return _session.session().join([handle], lambda found: found[0][0])


@outside_graph
def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Deals the tensor's rows out to all ranks, and returns what they had for this one.

    splits: how many rows go to each rank, in order; as many to each if left out. With splits the
    result is a pair: the tensor, and how many rows came from each rank.
    """
    out, received = _alltoall(tensor, splits, name, process_set)
    return out if splits is None else (out, received)


# ---------------------------------------------------------------------------- reducescatter


def _chunk(nrows: int, nranks: int, rank: int) -> int:
    """Rows of a rank: the first ones have one more."""
    each, more = divmod(nrows, nranks)
    return each + (rank < more)


def _checked_reduction(
    op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> Reduction:
    if op == Adasum:
        raise NotImplementedError("reducescatter: has no op Adasum; use hvd.allreduce()")
    if choose_op(op, None) not in (Average, Sum):
        raise ValueError("reducescatter: takes op Average or Sum")
    return Reduction(op, prescale, postscale, process_set)


def _check_rows(tensor: torch.Tensor, how: Reduction, kind: str, name: str | None) -> None:
    how.checked(tensor, kind, name)
    if tensor.dim() == 0:
        raise _wrong(
            f"{describe(tensor, kind, name)}: a scalar has no first dimension to scatter along"
        )


def _submit_scatter(tensor: torch.Tensor, name: str | None, how: Reduction, kind: str) -> int:
    members = members_of(how.among)
    _check_rows(tensor, how, kind, name)
    nrows = _chunk(tensor.shape[0], members.size, members.rank or 0)
    return submit_reducescatter(tensor, nrows, name, how, kind)


def _submit_group_scatter(tensors: list[torch.Tensor], name: str | None, how: Reduction) -> int:
    kind = "grouped_reducescatter"
    for tensor in tensors:
        _check_rows(tensor, how, kind, name)
    return submit_group(
        kind,
        len(tensors),
        name,
        lambda i, own: _submit_scatter(tensors[i], own, how, kind),
        how.among,
    )


class _Reducescatter(torch.autograd.Function):
    """Reduce-scatters one tensor, or a group, with a gradient."""

    @staticmethod
    def forward(ctx: Any, name: str | None, how: Reduction, grouped: bool, *tensors: Any) -> Any:
        ctx.how, ctx.grouped = how, grouped
        if grouped:
            return tuple(synchronize(_submit_group_scatter(list(tensors), name, how)))
        return synchronize(_submit_scatter(tensors[0], name, how, "reducescatter"))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        how = ctx.how
        factor = how.prescale * how.postscale
        if how.op == Sum:
            factor *= members_of(how.among).size
        scaled = [gradient * factor for gradient in gradients]
        if ctx.grouped:
            back = grouped_allgather(scaled, process_set=how.among)
        else:
            back = [allgather(scaled[0], process_set=how.among)]
        return (None, None, None, *back)


def _scattered(
    tensors: list[torch.Tensor],
    name: str | None,
    how: Reduction,
    compression: type[Compressor],
    grouped: bool,
) -> list[torch.Tensor]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    sent = [compressed for compressed, _ in pairs]
    found: Any
    if wants_graph(sent):
        apply: Any = _Reducescatter.apply
        found = apply(name, how, grouped, *sent)
    elif grouped:
        found = synchronize(_submit_group_scatter(sent, name, how))
    else:
        found = synchronize(_submit_scatter(sent[0], name, how, "reducescatter"))
    results = list(found) if grouped else [found]
    back: Callable[..., torch.Tensor] = compression.decompress
    return [back(result, context) for result, (_, context) in zip(results, pairs)]


@outside_graph
def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter. Returns a handle."""
    how = _checked_reduction(op, prescale_factor, postscale_factor, process_set)
    return _submit_scatter(tensor, name, how, "reducescatter")


@outside_graph
def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """This rank's rows of the reduction: the rows are dealt out, first ranks get one more."""
    how = _checked_reduction(op, prescale_factor, postscale_factor, process_set)
    (result,) = _scattered([tensor], name, how, compression, grouped=False)
    return result


@outside_graph
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts reducescatters of several tensors. One handle; its result is the list of theirs."""
    how = _checked_reduction(op, prescale_factor, postscale_factor, process_set)
    return _submit_group_scatter(list(tensors), name, how)


@outside_graph
def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """reducescatter() of each tensor; the i-th of all ranks belong together."""
    how = _checked_reduction(op, prescale_factor, postscale_factor, process_set)
    return _scattered(list(tensors), name, how, compression, grouped=True)
