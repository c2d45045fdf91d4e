# SPDX-License-Identifier: Apache-2.0
"""RANK, WORLD_SIZE and the like, which torchrun sets, and which other programs read.

A launcher with PMIx (srun, mpirun) sets none of them. So they are in os.environ from the first
init() of a job to its last end, where they were absent. The library itself takes PMIx before them.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from typing import Any

from ._core import ffi, lib, text_of

BYTES = 512
FIRST_PORT = 10000
TRIES = 64

_lock = threading.Lock()
_owners: set[int] = set()  # who has a job
_ours: dict[str, str] = {}


def near(host: str = "", port: int = 0) -> str:
    """This host's address towards that one; without one, towards anywhere; else loopback."""
    to = (host, port) if host else ("192.0.2.1", 9)  # nothing is sent
    try:
        family, _, _, _, at = socket.getaddrinfo(*to, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(at)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def reached_at(host: str, nnodes: int) -> str:
    """By what the other ranks reach this host, whose name may not resolve."""
    if nnodes == 1:
        return "127.0.0.1"
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        address = near()
        return host if address == "127.0.0.1" else address
    return host


def _first_lent() -> int:
    """The first port that the kernel gives to connections."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as found:
            return int(found.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def free_port(host: str = "") -> int:
    """One on which something is to listen later: none that a connection may be given meanwhile."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    choose, end = random.SystemRandom(), _first_lent()
    tried = [choose.randrange(FIRST_PORT, end) for _ in range(TRIES)] if end > FIRST_PORT else []
    for port in (*tried, 0):
        with socket.socket(family, socket.SOCK_STREAM) as one, contextlib.suppress(OSError):
            one.bind((host, port))
            return int(one.getsockname()[1])
    raise OSError(f"no port of {host or 'this host'} is free to listen on")


def _absent(values: dict[str, str]) -> dict[str, str]:
    """Those to set: none, where the environment tells of another job."""
    for name in ("RANK", "WORLD_SIZE"):
        if os.environ.get(name, values[name]) != values[name]:
            return {}
    return {name: value for name, value in values.items() if not os.environ.get(name)}


def announce(owner: object, context: Any, comm: Any) -> int:
    """Sets them for a job that its owner has found. Collective over the communicator of all ranks.
    Returns the code of what has failed, or 0."""
    topology = ffi.new("halay_topology_t *")
    topology.size = ffi.sizeof("halay_topology_t")
    code = int(lib.halay_context_topology(context, topology))
    if code != 0 or topology.nranks == 1:
        return code
    text = ffi.new("char[]", BYTES)
    if topology.rank == 0:
        host = reached_at(text_of(topology.host), topology.nnodes)
        told = f"{host} {free_port()}".encode()
        ffi.memmove(text, told, len(told))
    code = int(lib.halay_broadcast(text, BYTES, lib.HALAY_UINT8, 0, comm))
    if code != 0:
        return code
    host, port = text_of(text).split(" ")
    values = {
        "RANK": str(topology.rank),
        "WORLD_SIZE": str(topology.nranks),
        "LOCAL_RANK": str(topology.local_rank),
        "LOCAL_WORLD_SIZE": str(topology.local_nranks),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
    with _lock:
        _owners.add(id(owner))
        if not _ours:
            _ours.update(_absent(values))
            os.environ.update(_ours)
    return 0


def withdraw(owner: object) -> None:
    """Removes what was set, when the last owner ends; what the program has changed stays."""
    with _lock:
        _owners.discard(id(owner))
        if _owners:
            return
        for name, value in _ours.items():
            if os.environ.get(name) == value:
                del os.environ[name]
        _ours.clear()
