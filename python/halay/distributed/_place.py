# SPDX-License-Identifier: Apache-2.0
"""Who this rank is where only torch.distributed says so: rank=, world_size= and a store.

Rank 0 chooses a port and a secret, and tells the others through the store, which all have. So every
init_process_group() meets anew, and a process may be another rank of another group later.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from .._core import Place
from .._job import is_alone, job_value
from .._variables import free_port, near

KEY = "halay"


def launched() -> bool:
    """Whether a launcher that Halay asks itself has started this process."""
    if is_alone():
        return False
    return bool(job_value("meet") or os.environ.get("PMIX_NAMESPACE"))


def given(options: Any) -> Place | None:
    """None: a launcher says who this process is, or it is alone.

    torchrun's variables say it, too, if on all ranks both are there and are what torch was told:
    programs that start their ranks themselves, as Lightning, set one of them, or have those of
    their parent.
    """
    rank, size, store = options.group_rank, options.group_size, options.store
    variables = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE")]
    matches = variables == [str(rank), str(size)]
    if launched() or (size == 1 and (matches or not any(variables))):
        return None
    store.set(f"{KEY}/{rank}", str(int(matches)))
    if rank == 0:
        all_match = all(store.get(f"{KEY}/{one}") == b"1" for one in range(size))
        store.set(f"{KEY}/by", "variables" if all_match else "store")
    return None if store.get(f"{KEY}/by") == b"variables" else meet(store, rank, size)


def meet(store: Store, rank: int, size: int) -> Place:
    """As this rank of all that have the store, whatever has started the process."""
    if rank == 0:
        told = f"{_address(store)} {secrets.token_hex(16)}"
        store.set(KEY, told)
    else:
        told = store.get(KEY).decode()
    address, secret = told.split(" ")
    return Place(rank, size, address, secret)


def _address(store: Store) -> str:
    """A host and a port of this process that all who have the store reach."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    host = near(getattr(store, "host", ""), getattr(store, "port", 0))
    port = free_port(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
