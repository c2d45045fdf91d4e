# SPDX-License-Identifier: Apache-2.0
"""An allreduce that its caller waits for: the library gets its description once.

A short cut of submit_allreduce() and synchronize(), with few objects and one call. It takes what
nothing has to be done to before or after, and leaves all else to them.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _session
from .._core import TEXT_BYTES, c_shape, error, ffi, interrupted, interrupts, lib, text_of
from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Adasum
from .._session import Members
from ._submit import Reduction
from ._tensors import touched

_KIND = "allreduce"
_MOST = 4096  # reductions that are remembered, of each process set
_VOID = ffi.typeof("void *")
_PLAIN = (torch.Tensor, torch.nn.Parameter)  # a subclass may have memory elsewhere
_texts: list[Any] = []  # buffers for reasons, one for each thread that has been in a call at once


class Said:
    """A reduction under a name: its full name, and the halay_reduction_t."""

    __slots__ = ("_encoded", "full", "says")

    def __init__(self, tensor: torch.Tensor, name: str, how: Reduction, members: Members) -> None:
        _, type_, c_op, prescale, postscale = how.checked(tensor, _KIND, name)
        self.full, encoded = members.full_name(_KIND, name)
        members.place(name, self.full, encoded)
        self._encoded = ffi.new("char[]", encoded)
        self.says = ffi.new("halay_reduction_t *")
        self.says.size = ffi.sizeof("halay_reduction_t")
        self.says.name = self._encoded
        self.says.shape = c_shape(tensor.shape)[0]
        self.says.type, self.says.op = type_, c_op
        self.says.prescale, self.says.postscale = prescale, postscale


def _is_simple(tensor: torch.Tensor, how: Reduction, members: Members) -> bool:
    """Whether the library does all of it, for any tensor of this shape and dtype."""
    if members.rank is None or how.op == Adasum or tensor.numel() == 0 or tensor.is_complex():
        return False
    return tensor.is_floating_point() or how.prescale == how.postscale == 1.0


def _say(
    key: tuple[Any, ...], tensor: torch.Tensor, name: str, how: Reduction, members: Members
) -> Said | None:
    if not _is_simple(tensor, how, members):
        return None
    if len(members.said) >= _MOST:
        members.said.clear()
    members.said[key] = found = Said(tensor, name, how, members)
    return found


def _address(tensor: torch.Tensor) -> int:
    """Where its bytes are; 0: there are none, and the long way says why."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def allreduce_at_once(
    tensor: torch.Tensor,
    in_place: bool,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    among: ProcessSet,
) -> torch.Tensor | None:
    """The reduction; or None: nothing was submitted, and it has to go the long way."""
    session = _session.current()
    if (
        session is None
        or type(name) is not str
        or type(tensor) not in _PLAIN
        or not tensor.is_cpu
        or tensor.layout is not torch.strided
        or tensor.is_nested
        or not tensor.is_contiguous()
        or tensor.is_neg()
        or (not in_place and tensor.requires_grad and torch.is_grad_enabled())
    ):
        return None
    at = _address(tensor)
    if not at:
        return None
    members = session.members[0] if among is global_process_set else members_of(among)
    key = (name, op, prescale, postscale, tensor.dtype, tensor.shape)
    said = members.said.get(key)
    if said is None:
        said = _say(key, tensor, name, Reduction(op, prescale, postscale, among), members)
    if said is None or said.full in members.names:
        return None
    out = tensor if in_place else torch.empty_like(tensor, requires_grad=False)
    source = ffi.cast(_VOID, at)
    target = source if in_place else ffi.cast(_VOID, out.data_ptr())
    try:
        text = _texts.pop()
    except IndexError:
        text = ffi.new("char[]", TEXT_BYTES)
    if not members.claim(said.full):  # another thread was faster
        return None
    try:
        code = lib.halay_trainer_allreduce_wait(
            members.trainer, said.says, source, target, text, TEXT_BYTES
        )
    finally:
        members.names.discard(said.full)
    if code != 0:
        reason = text_of(text)
        verdict = reason if said.full in reason else f"{said.full!r}: {reason}"
        raise error(code, verdict, session.rank, session.host)
    if interrupts:
        interrupted()
    _texts.append(text)
    if in_place:
        touched(out)
    return out
