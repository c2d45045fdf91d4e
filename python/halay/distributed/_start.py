# SPDX-License-Identifier: Apache-2.0
"""The default group, and a store for it where the launcher gives none."""

from __future__ import annotations

import datetime
import socket
import time
from typing import Any

from torch._C._distributed_c10d import Store, TCPStore

from .._core import ffi, lib
from .._variables import reached_at
from ._group import HalayProcessGroup
from ._job import Job, is_joined, job, join, leave
from ._place import given

ADDRESS_BYTES = 256
STORE_TIMEOUT = datetime.timedelta(minutes=5)
CONNECT_TIMEOUT = datetime.timedelta(seconds=30)
LOOK_NS = 50_000_000
CONNECT_SLICE = datetime.timedelta(seconds=2)  # rank 0 may die before all have connected


def make(options: Any) -> HalayProcessGroup:
    """Called by torch.distributed, on every rank of the group."""
    found = join(None if is_joined() else given(options))
    try:
        _agree(options, found.rank, found.size)
        return HalayProcessGroup(options.store, found, found.world, options.timeout)
    except BaseException:
        leave(found)
        raise


def _agree(options: Any, rank: int, size: int) -> None:
    if (options.group_rank, options.group_size) == (rank, size):
        return
    if options.group_size < size and options.global_ranks_in_group:
        raise RuntimeError(
            f"halay: a sub-group of {options.group_size} of {size} ranks can be made only where "
            "the default group is halay's, and torch asks it for sub-groups (2.13 does)"
        )
    raise RuntimeError(
        f"halay: torch.distributed was told rank {options.group_rank} of {options.group_size}, "
        f"but Halay's launcher says rank {rank} of {size}: start the ranks with one launcher "
        '(torchrun, halayrun, srun, ...), or use init_method="halay://", which asks Halay'
    )


def _unresolved(host: str) -> str:
    """Why torch's store could not be reached by this name, or nothing."""
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return (
            f"halay: torch's store is reached by its host's name, and {host!r} does not resolve "
            f"({error}): put it into /etc/hosts or DNS, on all nodes"
        )
    return ""


def _store(
    host: str, port: int, size: int, serves: bool, timeout: datetime.timedelta = CONNECT_TIMEOUT
) -> TCPStore:
    store = TCPStore(host, port, size, serves, timeout=timeout, wait_for_workers=False)
    store.set_timeout(STORE_TIMEOUT)
    return store


def _reach(found: Job, host: str, port: int) -> TCPStore:
    """Rank 0's store; between tries this rank looks whether rank 0 lives. The first that sees that
    it does not revokes the communicator (_recover.py), which the others hear here."""
    end = time.monotonic() + CONNECT_TIMEOUT.total_seconds()
    while True:
        try:
            return _store(host, port, found.size, False, CONNECT_SLICE)
        except RuntimeError:
            lib.halay_context_progress(found.context, LOOK_NS)
            if 0 in found.failed():
                raise found.error(lib.HALAY_EPEER) from None
            if found.revoked(found.parent):
                raise found.error(lib.HALAY_EREVOKED, found.parent) from None
            if time.monotonic() > end:
                raise


def rendezvous() -> tuple[Store, int, int]:
    """Store, rank and size: the store's address is broadcast from rank 0."""
    found = job()
    text = ffi.new("char[]", ADDRESS_BYTES)
    store = None
    if found.rank == 0:
        host = reached_at(found.host, found.nnodes)
        reason = _unresolved(host)
        if not reason:
            store = _store(host, 0, found.size, True)
        told = f"{host}:{store.port:05d}" if store else f"!{reason}"
        ffi.memmove(text, told.encode()[: ADDRESS_BYTES - 1], min(len(told), ADDRESS_BYTES - 1))
    code = lib.halay_broadcast(text, ADDRESS_BYTES, lib.HALAY_UINT8, 0, found.parent)
    found.must(code, found.parent)
    if store is None:
        told = ffi.string(text).decode(errors="replace")
        host, port = told.rsplit(":", 1)
        reason = told[1:] if told[0] == "!" else _unresolved(host)
        if reason:
            raise RuntimeError(reason)
        store = _reach(found, host, int(port))
    # Rank 0 may end at once, and its store with it.
    found.must(lib.halay_barrier(found.parent), found.parent)
    return store, found.rank, found.size
