# SPDX-License-Identifier: Apache-2.0
"""An agent beside an engine's worker: halayrun --agent, as a child, and what its processes say.

The command line is the worker's own. What the processes do comes from the engine's driver to the
worker, and from there through a memory file: the head never says it.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..horovod import identity
from ..horovod.launch import find_halayrun
from .head import Contact
from .tether import Tethered
from .words import HEADER, Orders, contents, memory

_FD = struct.Struct("i")
_RIGHTS_BYTES = socket.CMSG_SPACE(_FD.size)
END_S = 10  # in which an agent that is told to end has ended its processes


class Said(NamedTuple):
    """kind: MET (it is this rank of so many), LOGGED or RETURNED (value: pickled), RAISED (value:
    a pickled tuple, of Failure). rank, size: -1 where it has not met the others."""

    kind: bytes
    slot: int
    rank: int
    size: int
    value: bytes


class Ended(NamedTuple):
    """The agent has. status: as subprocess has it; that of the job, if it was not told to leave."""

    status: int


def _environment(secret: str, variables: Mapping[str, str]) -> dict[str, str]:
    env = {**identity.without(dict(os.environ)), **variables, "HALAY_SECRET": secret}
    paths = [*env.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    return env


class Agent:
    """Brings the job so many places, whose processes do what orders say. Ends with this process.

    name: of its host, as the head is to know it. variables: of the processes, in addition.
    python: theirs. stdout, stderr: for what they and the agent write, as subprocess takes them.
    """

    def __init__(
        self,
        contact: Contact,
        orders: Orders,
        places: int = 1,
        *,
        name: str | None = None,
        variables: Mapping[str, str] | None = None,
        python: str | None = None,
        **streams: Any,
    ) -> None:
        orders_fd = memory("halay-orders", pickle.dumps(tuple(orders)))
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = (orders_fd, theirs.fileno())
        command = [find_halayrun(), "--agent", contact.address, "-np", str(places)]
        command += [] if name is None else ["--agent-name", name]
        command += ["--", python or sys.executable, "-m", "halay._agents.child", *map(str, fds)]
        env = _environment(contact.secret, variables or {})
        try:
            self._halayrun = Tethered(command, env, pass_fds=fds, **streams)
        except BaseException:
            self._sock.close()
            raise
        finally:
            theirs.close()
            os.close(orders_fd)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self, timeout_s: float | None = None) -> Said | Ended | None:
        """The next message; None: nothing within timeout_s. Ended is the last, again and again."""
        poll = select.poll()
        poll.register(self._halayrun.pidfd, select.POLLIN)
        poll.register(self._sock, select.POLLIN)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            said = self._receive()
            if said is not None:
                return said
            if self._halayrun.status is not None:
                return self._receive() or Ended(self._halayrun.status)
            left_s = 1.0 if end_s is None else end_s - time.monotonic()
            if left_s <= 0:
                return None
            ready = [fd for fd, _ in poll.poll(min(left_s, 1) * 1000)]
            if self._halayrun.pidfd in ready:
                self._halayrun.wait(END_S)

    def _receive(self) -> Said | None:
        try:
            # socket.recv_fds() drops its flags.
            flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            header, rights, _, _ = self._sock.recvmsg(HEADER.size, _RIGHTS_BYTES, flags)
        except BlockingIOError:
            return None
        if not rights:  # all that could say something are gone, and so will be the agent
            self._halayrun.wait(1)
            return None
        fd = _FD.unpack(rights[0][2])[0]
        try:
            kind, slot, rank, size = HEADER.unpack(header)
            return Said(kind, slot, rank, size, contents(fd))
        finally:
            os.close(fd)

    def leave(self) -> None:
        """Its processes leave at their next commit; then it ends. 30 s later it ends them."""
        self._halayrun.signal(signal.SIGTERM)

    def close(self) -> None:
        """Ends the agent and its processes, if it has not ended."""
        if not self._halayrun.wait(0):
            self._halayrun.signal(signal.SIGINT)  # unlike SIGTERM, not to leave
        if not self._halayrun.wait(1):
            self._halayrun.signal(signal.SIGINT)  # the second one ends what has not ended yet
        if not self._halayrun.wait(END_S):
            self._halayrun.signal(signal.SIGKILL)
            self._halayrun.wait(END_S)
        self._sock.close()
        self._halayrun.close()
