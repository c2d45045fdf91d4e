# SPDX-License-Identifier: Apache-2.0
"""Python objects, pickled, from one rank to all or from all to all; without a framework."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

from . import _session
from ._core import error, ffi, lib
from ._pickles import dumps
from ._process_sets import ProcessSet, global_process_set, members_of, root_among
from ._session import Members

_LENGTH_BYTES = 8


def _shape(count: int) -> Any:
    return ffi.new("halay_dims_t *", (1, [count]))


def _address(memory: bytearray) -> Any:
    return ffi.from_buffer(memory) if memory else ffi.new("char[]", 1)


def _broadcast(memory: bytearray, root: int, name: str | None, members: Members) -> None:
    """Overwrites it with that of members' rank root; as long on all of them."""
    address, shape = _address(memory), _shape(len(memory))

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(
            lib.halay_trainer_broadcast_shaped(
                trainer, encoded, address, shape, lib.HALAY_UINT8, root, ticket
            )
        )

    of = _session.session()
    of.wait(of.submit("broadcast", name, start, (memory, address), lambda *_: None, members))


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of rank root_rank, pickled; other ranks' obj is ignored."""
    members = members_of(process_set)
    root = root_among(members, root_rank, "broadcast_object")
    at_root = members.rank == root
    length, payload, failure = bytearray(_LENGTH_BYTES), bytearray(), None
    prefix = None if name is None else f"{name}.object"
    if at_root:
        try:
            payload = bytearray(dumps(obj))
            length[:] = len(payload).to_bytes(_LENGTH_BYTES, "little")
        except Exception as cause:  # the others wait for a length: tell them first
            failure = cause
            length[:] = b"\xff" * _LENGTH_BYTES
    _broadcast(length, root, None if prefix is None else f"{prefix}.length", members)
    if failure is not None:
        raise failure
    if length == b"\xff" * _LENGTH_BYTES:
        raise error(lib.HALAY_EINVAL, f"broadcast_object: rank {root_rank} could not pickle it")
    if not at_root:
        payload = bytearray(int.from_bytes(length, "little"))
    _broadcast(payload, root, prefix, members)
    return obj if at_root else pickle.loads(payload)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks, pickled."""
    own, failure = bytearray(), None
    try:
        own = bytearray(dumps(obj))
    except Exception as cause:  # the others wait for it: they get nothing
        failure = cause
    address, shape = _address(own), _shape(len(own))

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(
            lib.halay_trainer_allgather_shaped(
                trainer, encoded, address, shape, lib.HALAY_UINT8, ticket
            )
        )

    def finish(members: Members, ticket: int) -> list[Any]:
        data, _, rows = members.gathered(ticket)
        if failure is not None:
            raise failure
        if 0 in rows:
            who = members.ranks[rows.index(0)]
            raise error(lib.HALAY_EINVAL, f"allgather_object: rank {who} could not pickle it")
        at, found = ffi.cast("char *", data), []
        for length in rows:
            found.append(pickle.loads(ffi.buffer(at, length)))
            at += length
        return found

    of, own_name = _session.session(), None if name is None else f"{name}.object"
    handle = of.submit(
        "allgather", own_name, start, (own, address), finish, members_of(process_set)
    )
    result: list[Any] = of.wait(handle)
    return result


def warn_of_no_variables() -> None:
    """For broadcast_variables(), whose caller is warned."""
    warnings.warn(
        "broadcast_variables: there are none; a model has its variables once it is built: "
        "call it, or model.build(), before",
        RuntimeWarning,
        stacklevel=3,
    )


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it."""

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(lib.halay_trainer_barrier(trainer, encoded, ticket))

    of, members = _session.session(), members_of(process_set)
    of.wait(of.submit("barrier", None, start, None, lambda *_: None, members))
