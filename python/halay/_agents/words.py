# SPDX-License-Identifier: Apache-2.0
"""What an agent's process and the worker beside the agent say to each other.

The process inherits both ends: a memory file with its orders, and a socket. Each message of the
socket carries a memory file with its text. So nothing lies in a folder, a message is whole or is
not there, and has any length.
"""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import struct
from typing import Any, NamedTuple

from .._job import job_value

HEADER = struct.Struct("=ciii")  # kind, slot, rank and size: -1 where they are not known
MET, LOGGED, RETURNED, RAISED = b"M", b"L", b"R", b"E"


class Orders(NamedTuple):
    """What a process is to do.

    function: pickled, called without arguments. pickler: the module whose dumps() pickles what it
    returns. shim: `horovod` is Halay's. gpus: of its worker, then others of the node.
    """

    function: bytes
    pickler: str = "pickle"
    shim: bool = False
    gpus: tuple[str, ...] = ()


class Failure(NamedTuple):
    """What a process raised; error is None where it cannot be pickled, or is no Exception."""

    error: bytes | None
    summary: str
    traceback: str

    def exception(self) -> Exception:
        """It, as far as it can be made here."""
        if self.error is not None:
            try:
                error = pickle.loads(self.error)
            except Exception:
                error = None
            if isinstance(error, Exception):
                return error
        return RuntimeError(self.summary)


def memory(name: str, data: bytes) -> int:
    """A descriptor of a memory file with this in it."""
    fd = os.memfd_create(name)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(data)
    except BaseException:
        os.close(fd)
        raise
    return fd


def contents(fd: int) -> bytes:
    """All of a memory file, whoever has read it before."""
    size, parts, at = os.fstat(fd).st_size, [], 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


class Channel:
    """The process's end of the socket."""

    def __init__(self, sock: socket.socket, pickler: str) -> None:
        self.rank = self.size = -1
        self._slot = int(job_value("slot") or -1)
        self._sock, self._pickler = sock, pickler

    def dumps(self, value: Any) -> bytes:
        return bytes(importlib.import_module(self._pickler).dumps(value))

    def say(self, kind: bytes, value: bytes = b"") -> None:
        """Waits while the worker is behind. OSError where it is gone."""
        fd = memory("halay-said", value)
        try:
            header = HEADER.pack(kind, self._slot, self.rank, self.size)
            socket.send_fds(self._sock, [header], [fd])
        finally:
            os.close(fd)


_channel: Channel | None = None


def open_channel(sock: socket.socket, pickler: str) -> Channel:
    global _channel
    _channel = Channel(sock, pickler)
    return _channel


def log(value: Any) -> bool:
    """Sends it to the caller of the job. False: this process has nobody to send it to."""
    if _channel is None:
        return False
    _channel.say(LOGGED, _channel.dumps(value))
    return True
