# SPDX-License-Identifier: Apache-2.0
"""Who this rank is where only torch.distributed says so: rank=, world_size= and a store.

Rank 0 chooses a port and a secret, and tells the others through the store, which all have. So every
init_process_group() meets anew, and a process may be another rank of another group later.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from .._core import Place

KEY = "halay"
# A launcher that Halay asks itself; the variables of torchrun are RANK and WORLD_SIZE.
LAUNCHERS = ("HALAY_MEET", "PMIX_NAMESPACE", "RANK", "WORLD_SIZE")


def given(options: Any) -> Place | None:
    """None: a launcher says who this process is, or it is alone."""
    by_launcher = os.environ.get("HALAY_LAUNCHER") != "none" and any(map(os.environ.get, LAUNCHERS))
    if options.group_size == 1 or by_launcher:
        return None
    return meet(options.store, options.group_rank, options.group_size)


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
    host = _near(getattr(store, "host", ""), getattr(store, "port", 0))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.bind((host, 0))
        port = one.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _near(host: str, port: int) -> str:
    """This host's address towards the store's; without one, towards anywhere; else loopback."""
    to = (host, port) if host else ("192.0.2.1", 9)  # nothing is sent
    try:
        family, _, _, _, at = socket.getaddrinfo(*to, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(at)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
