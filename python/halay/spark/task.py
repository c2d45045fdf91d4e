# SPDX-License-Identifier: Apache-2.0
"""What a Spark task does: it calls the driver, starts a process that is a rank, and tells what
becomes of it. The task's own process serves other jobs later, so it never is a rank itself.

Invariant: the rank's process is there only as long as the task and its line to the driver are.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import pickle
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

from .._engines import Where, meeting_place
from ..horovod import identity
from .line import Line
from .words import LENGTH, STATUS, Orders

CALL_S = 30  # so long a task tries to reach the driver
END_S = 10  # so long a guard may take to end a rank
CHUNK_BYTES = 1 << 16
LINE_BYTES = 1 << 16  # of output that is kept until its line ends
DRAIN_CHUNKS = 16  # the most that a pipe holds, unless root has said otherwise


class Contact(NamedTuple):
    """Where the driver listens, and the secret of the run."""

    host: str
    port: int
    key: bytes

    def secret(self) -> str:
        """The key of the ranks among themselves. The line need not carry it."""
        return hmac.digest(self.key, b"ranks", "sha256").hex()

    def call(self) -> Line:
        end_s = time.monotonic() + CALL_S
        while True:
            try:
                return Line(socket.create_connection(self[:2], timeout=CALL_S), self.key, False)
            except (OSError, EOFError):
                if time.monotonic() >= end_s:
                    raise
            time.sleep(0.2)


class Hello(NamedTuple):
    """A task's first words. attempt: a word of all tasks of one attempt at the stage. address:
    where ranks could meet, if it becomes rank 0."""

    attempt: str
    partition: int
    where: Where
    address: str


class Work(NamedTuple):
    """The driver's answer, without the ranks' secret. forward: the streams that it wants."""

    orders: Orders
    variables: Mapping[str, str]
    executable: str | None
    forward: tuple[str, ...]
    timestamp: bool


class Output(NamedTuple):
    """Lines of a rank."""

    stream: str
    text: bytes


class End(NamedTuple):
    """A rank's: its exit status (None: why says why), and what it said, which may be cut off."""

    status: int | None
    said: bytes
    why: str = ""


def where_is(context: Any) -> Where:
    """Where this task runs."""
    host, machine = socket.gethostname(), ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read(8)
    gpus = context.resources().get("gpu")
    addresses = list(gpus.addresses) if gpus is not None else []
    return Where(f"{host}-{machine}", host, os.getpid(), addresses)


def _hello(partition: int, line: Line) -> Hello:
    """As soon as all tasks of this attempt are there."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    attempt = context.allGather(secrets.token_hex(8))[0]
    return Hello(attempt, partition, where_is(context), meeting_place(line.sock.getsockname()[0]))


class Lines:
    """Cuts a stream into lines, and says before each one whose it is (rank -1: not known yet)."""

    def __init__(self, name: str, rank: int, timestamp: bool) -> None:
        self.name, self.rank, self._timestamp = name, rank, timestamp
        self._rest = b""

    def take(self, data: bytes, last: bool = False) -> bytes:
        lines = (self._rest + data).splitlines(keepends=True)
        self._rest = b""
        if lines and not lines[-1].endswith(b"\n"):
            if last or len(lines[-1]) >= LINE_BYTES:
                lines[-1] += b"\n"
            else:
                self._rest = lines.pop()
        now = time.asctime() if self._timestamp else ""
        before = f"{now}[{self.rank if self.rank >= 0 else '-'}]<{self.name}>:".encode()
        return b"".join(before + line for line in lines)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    env = {**identity.without(dict(os.environ)), **variables}
    paths = [*env.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    return env


class _Child:
    """The guard of a rank's process, and what is read of the rank."""

    def __init__(self, work: Work, line: Line) -> None:
        self._work, self._line = work, line
        self._said = bytearray()
        self._lines: dict[IO[bytes], Lines] = {}
        self._pipe, write = os.pipe()
        python = work.executable or sys.executable
        self.guard = subprocess.Popen(
            [python, "-m", "halay.spark.child", str(write)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(work.variables),
            pass_fds=(write,),
            start_new_session=True,
        )
        os.close(write)

    def end(self) -> None:
        """The guard ends the rank as soon as its standard input is closed."""
        assert self.guard.stdin is not None
        with contextlib.suppress(OSError):
            self.guard.stdin.close()

    def tell(self) -> None:
        assert self.guard.stdin is not None
        orders = pickle.dumps(tuple(self._work.orders))
        with contextlib.suppress(BrokenPipeError):  # it has ended, and that is told
            self.guard.stdin.write(LENGTH.pack(len(orders)) + orders)
            self.guard.stdin.flush()

    def watch(self) -> End:
        """Until the guard has ended. Ends the rank if the driver hangs up."""
        rank, timestamp = self._work.orders.rank, self._work.timestamp
        ended = os.pidfd_open(self.guard.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            selector.register(self._pipe, selectors.EVENT_READ)
            selector.register(self._line.sock, selectors.EVENT_READ)
            for name, stream in (("stdout", self.guard.stdout), ("stderr", self.guard.stderr)):
                assert stream is not None
                self._lines[stream] = Lines(name, rank, timestamp)
                selector.register(stream, selectors.EVENT_READ)
            for fd in (self._pipe, *(stream.fileno() for stream in self._lines)):
                os.set_blocking(fd, False)
            is_over = False
            while not is_over:  # what was written before the end is read after it
                is_over = self._step(selector, ended)
        os.close(ended)
        self._drain()
        return self._result()

    def _step(self, selector: selectors.BaseSelector, ended: int) -> bool:
        """Whether the guard has ended."""
        is_over = False
        for key, _ in selector.select():
            if key.fileobj == ended:
                is_over = True
            elif key.fileobj is self._line.sock:  # the driver says nothing more: it has hung up
                selector.unregister(self._line.sock)
                self.end()
            elif self._read(key.fileobj) == b"":
                selector.unregister(key.fileobj)
        return is_over

    def _read(self, source: Any) -> bytes | None:
        """Empty at its end; None where nothing is there now."""
        try:
            data = os.read(source if isinstance(source, int) else source.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return None
        if source == self._pipe:
            self._said += data
        else:
            self._write(self._lines[source], data)
        return data

    def _drain(self) -> None:
        """What was written before the guard's end. Others may hold the streams, and write on."""
        for source in (self._pipe, *self._lines):
            for _ in range(DRAIN_CHUNKS):
                if not self._read(source):
                    break
        for lines in self._lines.values():
            self._write(lines, b"", last=True)

    def _write(self, lines: Lines, data: bytes, last: bool = False) -> None:
        text = lines.take(data, last)
        if not text:
            return
        if lines.name in self._work.forward:
            try:
                self._line.send(Output(lines.name, text))
            except OSError:
                self.end()
        else:
            os.write(1 if lines.name == "stdout" else 2, text)

    def _result(self) -> End:
        self.guard.wait()
        if self.guard.returncode != 0 or len(self._said) < STATUS.size:
            return End(None, b"", "its guard was killed")
        status: int = STATUS.unpack(self._said[-STATUS.size :])[0]
        return End(status, bytes(self._said[: -STATUS.size]))

    def close(self) -> None:
        self.end()
        try:
            self.guard.wait(END_S)
        except subprocess.TimeoutExpired:
            self.guard.kill()  # the rank dies with it
            self.guard.wait()
        for stream in (self.guard.stdout, self.guard.stderr):
            if stream is not None:
                stream.close()
        os.close(self._pipe)


def _serve(work: Work, line: Line) -> End:
    """Starts the rank, and waits for its end."""
    try:
        child = _Child(work, line)
    except OSError as error:
        why = f"{error}: say by PYSPARK_PYTHON or run(executable=...) which Python executors have"
        return End(None, b"", f"it could not be started: {why}")
    try:
        child.tell()
        return child.watch()
    finally:
        child.close()


def attend(contact: Contact, partition: int, _: Iterable[Any]) -> Iterable[Any]:
    """One task, from beginning to end. What it has to say goes to the driver by its line."""
    line = contact.call()
    try:
        line.send(_hello(partition, line))
        # The driver hangs up when the run is over; None for a task that Spark has started again.
        with contextlib.suppress(OSError, EOFError):
            work = line.receive()
            if work is not None:
                orders = work.orders._replace(secret=contact.secret())
                line.send(_serve(work._replace(orders=orders), line))
    finally:
        line.close()
    return []
