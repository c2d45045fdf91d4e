# SPDX-License-Identifier: Apache-2.0
"""The default group, and a store for it where the launcher gives none."""

from __future__ import annotations

import datetime
from typing import Any

from torch._C._distributed_c10d import Store, TCPStore

from ._cdef import ffi, lib
from ._group import HalayProcessGroup
from ._job import job, join, leave

ADDRESS_BYTES = 256
STORE_TIMEOUT = datetime.timedelta(minutes=5)


def make(options: Any) -> HalayProcessGroup:
    """Called by torch.distributed, on every rank of the group."""
    found = join()
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


def rendezvous() -> tuple[Store, int, int]:
    """Store, rank and size: the store's address is broadcast from rank 0."""
    found = job()
    text = ffi.new("char[]", ADDRESS_BYTES)
    store = None
    if found.rank == 0:
        store = TCPStore(
            found.host, 0, found.size, True, timeout=STORE_TIMEOUT, wait_for_workers=False
        )
        text[0 : len(found.host) + 6] = f"{found.host}:{store.port:05d}".encode()
    request = ffi.new("halay_request_t **")
    code = lib.halay_ibroadcast(text, ADDRESS_BYTES, lib.HALAY_UINT8, 0, found.parent, request)
    if code == 0:
        code = lib.halay_request_wait(request[0])
    found.must(code, found.parent)
    if store is None:
        host, port = ffi.string(text).decode().rsplit(":", 1)
        store = TCPStore(
            host, int(port), found.size, False, timeout=STORE_TIMEOUT, wait_for_workers=False
        )
    return store, found.rank, found.size
