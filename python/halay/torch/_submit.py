# SPDX-License-Identifier: Apache-2.0
"""Hands tensors to the session: checks them, fills the C call, makes the result. No autograd.

A tensor that does not lie in one piece is sent as a copy, and copied back where it is the result.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch

from .. import _session, _tensors
from .._core import c_shape, ffi, lib
from .._process_sets import ProcessSet, members_of, root_among
from .._reductions import BOOL_OPS, C_OPS, OP_NAMES, Adasum, Average, Sum
from .._session import Members
from . import _adasum
from ._tensors import address, behind, dense, describe, refuse_overlap, touched, type_of, waited

_ADASUM = -1  # no operation of the library


@functools.cache
def _takes(c_op: int, type_: int) -> bool:
    return bool(lib.halay_op_takes(c_op, type_))


def _c_reduction(
    tensor: torch.Tensor, op: int, prescale: float, postscale: float, nranks: int
) -> tuple[int, float, float]:
    """Halay's operation and scales.

    Average is the sum times 1/size, as in Horovod; integers without scales are divided, and
    truncate toward zero.
    """
    scaled = prescale != 1.0 or postscale != 1.0
    if tensor.dtype == torch.bool:
        if op not in BOOL_OPS or scaled:
            raise TypeError(
                "bool takes op Min, Max or Product without scale factors; convert it, "
                "for example with tensor.int()"
            )
        return BOOL_OPS[op], 1.0, 1.0
    if op == Average:
        inexact = tensor.is_floating_point() or tensor.is_complex()
        if inexact or scaled:
            return lib.HALAY_SUM, prescale, postscale / nranks
        return lib.HALAY_AVERAGE, 1.0, 1.0
    if op == Adasum:
        if tensor.dtype not in _adasum.DTYPES:
            raise TypeError("op Adasum takes floating point tensors")
        return _ADASUM, prescale, postscale
    if scaled and op != Sum:
        raise ValueError(
            "prescale_factor and postscale_factor need op Average, Sum or Adasum, not "
            f"{OP_NAMES[op]}"
        )
    return C_OPS[op], prescale, postscale


def _scaled_integers(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """A copy times factor, in float64, truncated toward zero: as Horovod does."""
    return (tensor.to(torch.float64) * factor).to(tensor.dtype)


def _integer_scales(
    sent: torch.Tensor, prescale: float, postscale: float
) -> tuple[torch.Tensor, float, float, float]:
    """What to send, the trainer's scales, and by what to scale its result.

    The trainer scales inexact types only.
    """
    if sent.is_floating_point() or sent.is_complex():
        return sent, prescale, postscale, 1.0
    if prescale != 1.0:
        sent = _scaled_integers(sent, prescale)
    return sent, 1.0, 1.0, postscale


# Whom to submit to, and the type, operation and scales of the C call.
Checked = tuple[Members, int, int, float, float]


class Reduction:
    """What to do with a tensor in an allreduce, and among whom."""

    def __init__(self, op: int, prescale: float, postscale: float, among: ProcessSet) -> None:
        self.op, self.prescale, self.postscale, self.among = op, prescale, postscale, among

    def checked(self, tensor: torch.Tensor, kind: str, name: str | None) -> Checked:
        members = members_of(self.among)
        type_ = type_of(tensor, kind, name)
        try:
            c_op, pre, post = _c_reduction(
                tensor, self.op, self.prescale, self.postscale, members.size
            )
            if c_op != _ADASUM and not _takes(c_op, type_):
                raise TypeError(f"op {OP_NAMES[self.op]} does not take this dtype")
        except (TypeError, ValueError) as error:
            raise type(error)(f"{describe(tensor, kind, name)}: {error}") from None
        return members, type_, c_op, pre, post


def _submit_reduction(
    call: Callable[..., int],
    kind: str,
    name: str | None,
    sent: torch.Tensor,
    out: torch.Tensor,
    checked: Checked,
    then: Callable[[], torch.Tensor],
) -> int:
    """Reduces into out, of which then() makes the caller's result."""
    members, type_, c_op, prescale, postscale = checked
    sent, prescale, postscale, after = _integer_scales(sent, prescale, postscale)
    shape = c_shape(sent.shape)

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return call(
            trainer,
            encoded,
            address(sent),
            address(out),
            shape,
            type_,
            c_op,
            prescale,
            postscale,
            ticket,
        )

    def finish(_members: Members, _ticket: int) -> torch.Tensor:
        if after != 1.0:
            with torch.no_grad():
                out.copy_(_scaled_integers(out, after))
        return then()

    return _session.session().submit(
        kind, name, behind(start, sent, out), (sent, out), finish, members
    )


def submit_allreduce(
    tensor: torch.Tensor,
    target: torch.Tensor | None,
    name: str | None,
    how: Reduction,
    kind: str = "allreduce",
) -> int:
    """The result goes to target, which may be the tensor, or to a new tensor."""
    checked = how.checked(tensor, kind, name)
    own, tensor = target is tensor, waited(tensor)
    target = tensor if own else target
    sent = dense(tensor)
    if target is not None:
        refuse_overlap(target, kind, name)
    members, _, c_op, prescale, postscale = checked
    if c_op == _ADASUM:
        return _submit_adasum(sent.detach(), target, name, members, prescale * postscale, kind)
    if target is tensor and sent.data_ptr() == tensor.data_ptr():
        out = tensor
    else:
        out = torch.empty_like(sent, requires_grad=False)

    def then() -> torch.Tensor:
        if target is None:
            return out
        if out is target:
            touched(target)
        else:
            with torch.no_grad():
                target.copy_(out)
        return target

    call = lib.halay_trainer_allreduce_shaped
    return _submit_reduction(call, kind, name, sent, out, checked, then)


def _submit_adasum(
    sent: torch.Tensor,
    target: torch.Tensor | None,
    name: str | None,
    members: Members,
    factor: float,
    kind: str,
) -> int:
    """Scaling before and after are one: Adasum of multiples is the multiple.

    It is reckoned on the host, also of tensors of a device.
    """
    like, sent = sent, sent.cpu()

    def then(result: torch.Tensor) -> torch.Tensor:
        if target is None:
            return _tensors.brought(result, like.device) if like.is_cuda else result
        with torch.no_grad():
            target.copy_(result)
        return target

    def start(full: str) -> _adasum.Entry:
        return _adasum.side_of(members).submit(_adasum.Entry(full, sent, factor, then))

    return _session.session().submit_aside(kind, name, start, members)


def submit_reducescatter(
    tensor: torch.Tensor, nrows: int, name: str | None, how: Reduction, kind: str
) -> int:
    """The result is a new tensor: this rank's rows, so many, of the reduction."""
    checked = how.checked(tensor, kind, name)
    sent = dense(waited(tensor))
    out = sent.new_empty((nrows, *sent.shape[1:]))
    call = lib.halay_trainer_reduce_scatter
    return _submit_reduction(call, kind, name, sent, out, checked, lambda: out)


# An allgather's or alltoall's result: the gathered tensor, and how many of its rows each rank has.
Gathered = Callable[[torch.Tensor, list[int]], Any]


def check_gather(tensor: torch.Tensor, kind: str, name: str | None) -> None:
    type_of(tensor, kind, name)
    if tensor.dim() == 0:
        raise ValueError(
            f"{describe(tensor, kind, name)}: a scalar has no first dimension to gather "
            "along; use tensor.unsqueeze(0)"
        )


def _take(out: torch.Tensor, data: Any) -> None:
    """Copies a result of the trainer's into out, which is of the same kind of memory."""
    if not out.is_cuda:
        ffi.memmove(address(out), data, out.numel() * out.element_size())
        return
    session = _session.session()
    session.reach(_tensors.c_stream(_tensors.current(out.device)))
    session.move(address(out), data, out.numel() * out.element_size())


def _submit_gather(
    call: Callable[..., int],
    kind: str,
    name: str | None,
    tensor: torch.Tensor,
    members: Members,
    then: Gathered,
) -> int:
    """Submits an operation whose result the trainer allocates. call: lacks input, shape, type."""
    check_gather(tensor, kind, name)
    type_ = type_of(tensor, kind, name)
    sent = dense(waited(tensor))
    row_shape = tuple(sent.shape[1:])
    shape = c_shape(sent.shape)

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return call(trainer, encoded, address(sent), shape, type_, ticket)

    def finish(of: Members, ticket: int) -> Any:
        data, count, rows = of.gathered(ticket)
        out = sent.new_empty((sum(rows), *row_shape))
        assert out.numel() == count
        if count > 0:
            _take(out, data)
        return then(out, rows)

    return _session.session().submit(kind, name, behind(start, sent), sent, finish, members)


def submit_allgather(
    tensor: torch.Tensor, name: str | None, among: ProcessSet, then: Gathered, kind: str
) -> int:
    call = lib.halay_trainer_allgather_shaped
    return _submit_gather(call, kind, name, tensor, members_of(among), then)


def submit_alltoall(
    tensor: torch.Tensor, splits: list[int], name: str | None, among: ProcessSet, then: Gathered
) -> int:
    """splits: how many rows go to each rank."""

    def call(trainer: Any, encoded: bytes, sent: Any, *what: Any) -> int:
        return int(lib.halay_trainer_alltoall(trainer, encoded, sent, splits, *what))

    return _submit_gather(call, "alltoall", name, tensor, members_of(among), then)


def submit_broadcast(
    tensor: torch.Tensor,
    target: torch.Tensor | None,
    root_rank: int,
    name: str | None,
    among: ProcessSet,
) -> int:
    """As submit_allreduce(); root_rank is a rank of the job, also in a process set."""
    members = members_of(among)
    type_ = type_of(tensor, "broadcast", name)
    root = root_among(members, root_rank, describe(tensor, "broadcast", name))
    own, tensor = target is tensor, waited(tensor)
    target = tensor if own else target
    if target is None:
        buffer = dense(tensor.detach()).clone()
    else:
        refuse_overlap(target, "broadcast", name)
        buffer = dense(tensor)
    shape = c_shape(buffer.shape)

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(
            lib.halay_trainer_broadcast_shaped(
                trainer, encoded, address(buffer), shape, type_, root, ticket
            )
        )

    def finish(_members: Members, _ticket: int) -> torch.Tensor:
        if target is None:
            return buffer
        with torch.no_grad():
            if buffer.data_ptr() != target.data_ptr():
                target.copy_(buffer)
            else:
                touched(target)
        return target

    return _session.session().submit(
        "broadcast", name, behind(start, buffer), buffer, finish, members
    )


def submit_group(
    kind: str,
    count: int,
    name: str | None,
    start: Callable[[int, str | None], int],
    among: ProcessSet,
) -> int:
    """start(i, name of the i-th) for each tensor of a group; one handle for the list of results."""
    names = [None if name is None else f"{name}.{i}" for i in range(count)]
    return _session.session().submit_group(
        kind, names, lambda i: start(i, names[i]), members_of(among)
    )


@_tensors.outside_graph
def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return at once. Never blocks.

    Straight after the call that gave the handle the answer is False, whoever was faster.
    """
    return _session.session().poll(handle)


@_tensors.outside_graph
def synchronize(handle: int) -> Any:
    """Waits for a handle, once, and returns its result or raises its error."""
    return _session.session().wait(handle)
