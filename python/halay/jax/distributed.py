# SPDX-License-Identifier: Apache-2.0
"""jax.distributed under any launcher that Halay knows: srun, halayrun, mpirun, PALS, JSM."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import jax

from .. import _basics, _objects, _session


def _own_address(others: list[str]) -> str:
    """Where the other hosts reach this one: the address from which it reaches the first of them."""
    own = _session.session().host
    for other in others:
        if other == own:
            continue
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        ):
            probe.connect((other, 9))  # sends nothing
            return str(probe.getsockname()[0])
        return socket.getfqdn()
    return "127.0.0.1"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def initialize(**options: Any) -> None:
    """jax.distributed.initialize() for the ranks of this job, which init() joins if it was not.

    To be called before JAX is used. Rank 0 coordinates, at a free port of its own, which is told
    over Halay. options: further ones of jax.distributed.initialize().
    """
    _basics.init()
    of = _session.session()
    hosts = [str(host) for host in _objects.allgather_object(of.host)]
    address = f"{_own_address(hosts)}:{_free_port()}" if of.rank == 0 else ""
    address = _objects.broadcast_object(address, 0)
    jax.distributed.initialize(
        coordinator_address=address, num_processes=of.size, process_id=of.rank, **options
    )


def shutdown() -> None:
    """jax.distributed.shutdown()."""
    jax.distributed.shutdown()
