# SPDX-License-Identifier: Apache-2.0
"""The head of an elastic job, beside an engine's driver: halayrun --agents, as a child."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

from ..horovod import identity
from ..horovod.launch import find_halayrun
from .tether import Tethered

START_S = 30  # in which halayrun says where agents come to
GRACE_S = 5  # for processes that heed no signal
END_S = 20  # in which it has ended its agents
KEPT_LINES = 50
TOLD_LINES = 4
_ADDRESS = re.compile(r"agents come to (\S+): ")


class Contact(NamedTuple):
    """Where the head listens, and the job's secret: for the engine's own, safe ways only."""

    address: str
    secret: str

    def __repr__(self) -> str:
        return f"Contact({self.address!r})"


class JobEnded(RuntimeError):
    """An elastic job ended without a result. status: of its head. said: what that said last."""

    def __init__(self, status: int, said: Sequence[str], remedy: str = "") -> None:
        self.status, self.said, self.remedy = status, list(said), remedy
        why = "; ".join(self.said) or "its head has said nothing"
        super().__init__(f"the job ended with status {status}: {why}{remedy and '. '}{remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.status, self.said, self.remedy)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Head:
    """To be used in a with statement, at whose end nothing of the job is left.

    least, most: how many ranks, as --min-np and --max-np. agents: so many must have come before
    the first rank is started (least). host: the address to listen at. cooldown_s: how long the
    place of a process that has failed stays empty at first, and at most. say: gets each line of
    what halayrun says. secret: one is drawn, if none is given.
    """

    def __init__(
        self,
        least: int,
        most: int | None = None,
        *,
        host: str,
        agents: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout_s: float = 600,
        cooldown_s: Sequence[float] | None = None,
        say: Callable[[str], None] = _to_stderr,
        secret: str | None = None,
    ) -> None:
        words = ["--agents", str(least if agents is None else agents), "--min-np", str(least)]
        words += [] if most is None else ["--max-np", str(most)]
        words += [] if reset_limit is None else ["--reset-limit", str(reset_limit)]
        words += ["--grace", str(GRACE_S)]
        words += ["--elastic-timeout", str(max(round(elastic_timeout_s), 1))]
        if cooldown_s is not None:
            words += ["--blacklist-cooldown-range", *(f"{seconds:g}" for seconds in cooldown_s)]
        listen = f"[{host}]:0" if ":" in host else f"{host}:0"
        self._command = [find_halayrun(), *words, "--listen", listen]
        self._secret = secrets.token_hex(16) if secret is None else secret
        self._say = say
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        self._address = ""
        self._told = threading.Event()  # the address, or that there will be none

    def __enter__(self) -> Head:
        env = {**identity.without(dict(os.environ)), "HALAY_SECRET": self._secret}
        self._halayrun = Tethered(
            self._command, env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        stream = self._halayrun.process.stderr
        assert stream is not None
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()
        try:
            self._told.wait(START_S)
            if self._address:
                return self
        except BaseException:  # an interrupt
            self.__exit__()
            raise
        self.__exit__()
        raise JobEnded(self._halayrun.status or 0, self.said())

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._halayrun.close()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                found = _ADDRESS.search(line)
                if found and not self._address:
                    self._address = found.group(1)
                    self._told.set()
                    continue  # no use to who cannot start an agent
                self._said.append(line.partition("halayrun: ")[2] or line)
                self._say(line)
        self._told.set()

    @property
    def contact(self) -> Contact:
        """For the agents."""
        return Contact(self._address, self._secret)

    @property
    def status(self) -> int | None:
        """The exit status of the job; None while it runs."""
        return self._halayrun.status

    def wait(self, timeout_s: float) -> int | None:
        """As status, after waiting for the end for up to timeout_s."""
        self._halayrun.wait(timeout_s)
        return self.status

    def said(self) -> list[str]:
        """What it said last, the reason of an end among it."""
        return list(self._said)[-TOLD_LINES:]

    def ended(self, remedy: str = "") -> JobEnded:
        """An error that says why it has ended."""
        self._reader.join(START_S)
        return JobEnded(self.status or 0, self.said(), remedy)

    def stop(self) -> None:
        """Ends the job, if it has not ended: its agents end their processes."""
        self._halayrun.signal(signal.SIGTERM)
        if not self._halayrun.wait(END_S):
            self._halayrun.signal(signal.SIGKILL)  # its agents notice that themselves
            self._halayrun.wait(END_S)
        self._reader.join(START_S)
