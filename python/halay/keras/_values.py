# SPDX-License-Identifier: Apache-2.0
"""Values of variables, from one rank to all; through NumPy, so alike on all back ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _objects, _session
from .._core import error, ffi, lib
from .._process_sets import ProcessSet, global_process_set, members_of, root_among
from ._which import numpy_of


def _refuse_different(arrays: Sequence[Any], what: str, process_set: ProcessSet) -> None:
    own = [(array.dtype.name, array.shape) for array in arrays]
    all_ = _objects.allgather_object(own, process_set=process_set)
    for rank, theirs in zip(members_of(process_set).ranks, all_):
        if theirs == all_[0]:
            continue
        first = members_of(process_set).ranks[0]
        pairs = zip(all_[0], theirs)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(all_[0]), len(theirs)))
        shown = [str(some[at]) if at < len(some) else "none" for some in (all_[0], theirs)]
        raise error(
            lib.HALAY_EMISMATCH,
            f"{what} differ between ranks: rank {first} has {len(all_[0])}, number {at} is "
            f"{shown[0]}; rank {rank} has {len(theirs)}, number {at} is {shown[1]}. The model and "
            "its optimizer have to be the same on all ranks",
            _session.session().rank,
            _session.session().host,
        )


def broadcast_values(
    arrays: Sequence[Any],
    root_rank: int,
    what: str,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """root_rank's arrays, on all ranks. HalayMismatch on all of them where shapes differ."""
    of, members = _session.session(), members_of(process_set)
    root = root_among(members, root_rank, "broadcast")
    copies = [np.array(array, order="C") for array in arrays]
    _refuse_different(copies, what, process_set)
    handles = []
    for copy in copies:
        if copy.nbytes == 0:
            continue
        memory = ffi.from_buffer(copy.reshape(-1).view(np.uint8))
        shape = ffi.new("halay_dims_t *", (1, [copy.nbytes]))

        def start(trainer: Any, encoded: bytes, ticket: Any, at: Any = (memory, shape)) -> int:
            call = lib.halay_trainer_broadcast_shaped
            return int(call(trainer, encoded, *at, lib.HALAY_UINT8, root, ticket))

        handles.append(
            of.submit("broadcast", None, start, (copy, memory), lambda *_: None, members)
        )
    of.wait_all(handles)
    return copies


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Gives all ranks' variables the values that root_rank's have."""
    if not variables:
        _objects.warn_of_no_variables()
    values = [numpy_of(variable) for variable in variables]
    for variable, value in zip(
        variables, broadcast_values(values, root_rank, "variables", process_set)
    ):
        variable.assign(value)
