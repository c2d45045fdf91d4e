# SPDX-License-Identifier: Apache-2.0
"""Where tasks call the driver: what they say becomes events, what their ranks write goes to the
caller's streams.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .line import Line
from .task import Contact, Hello, Output

HANG_UP_S = 5  # in which tasks have ended their ranks
STRANGERS = 64  # connections at a time beside those of the tasks


class Member:
    """A task that has called, and the thread that serves it."""

    def __init__(self, hello: Hello, line: Line) -> None:
        self.attempt, self.partition, self.where, self.address = hello
        self.line, self.thread = line, threading.current_thread()
        self.rank = -1  # not told yet
        self.work: queue.SimpleQueue[Any] = queue.SimpleQueue()  # None: there is nothing to do


class Event(NamedTuple):
    """kind: hello, said (what: End, or of an elastic run Said or Ended), gone (what: why), job
    (what: None or Spark's error)."""

    kind: str
    member: Member | None
    what: Any = None


class Switchboard:
    """Listens for tasks; what they say becomes events, their output goes to the streams."""

    def __init__(self, host: str, bind: str, tasks: int, streams: Mapping[str, Any]) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._streams, self._is_closed = streams, False
        self._writing = threading.Lock()
        self._room = threading.Semaphore(tasks + STRANGERS)
        self._server = socket.create_server(
            (bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET
        )
        key = secrets.token_bytes(32)
        self.contact = Contact(host, self._server.getsockname()[1], key)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock = self._server.accept()[0]
            except OSError:
                return  # closed
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()
            else:
                sock.close()  # a task calls again

    def _serve(self, sock: socket.socket) -> None:
        member = None
        try:
            line = Line(sock, self.contact.key, True)
            member = Member(Hello(*line.receive()), line)
            self.events.put(Event("hello", member))
            if self._is_closed:
                member.work.put(None)
            line.send(member.work.get())
            while True:
                said = line.receive()
                if isinstance(said, Output):
                    self._write(said)
                else:
                    self.events.put(Event("said", member, said))
        except Exception as error:  # of a stranger too, who has no say in anything else
            if member is not None:
                self.events.put(Event("gone", member, str(error)))
        finally:
            self._room.release()
            sock.close()

    def _write(self, output: Output) -> None:
        stream = self._streams[output.stream]
        text = output.text.decode("utf-8", "replace")
        with self._writing:
            try:
                stream.write(text)
                stream.flush()
            except Exception as error:  # the caller's: no reason to end the run
                warnings.warn(f"{output.stream}: {error}", stacklevel=1)

    def close(self, members: Sequence[Member]) -> None:
        """Hangs up, and gives the tasks time to end what they have started."""
        # Not every kernel wakes up accept() when its socket is closed.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._is_closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                event = self.events.get_nowait()
                if event.kind == "hello" and event.member is not None:
                    event.member.work.put(None)
        for member in members:
            member.work.put(None)  # it may not have been told anything
            member.line.finish()
        end_s = time.monotonic() + HANG_UP_S
        for member in members:
            member.thread.join(max(end_s - time.monotonic(), 0))
