# SPDX-License-Identifier: Apache-2.0
"""Of the elastic trainings that tests start: what happens to a rank, and the log of its commits.

EVENTS: a list of [batch, rank, what]: what that rank does before that batch, once; "stop in M": it
stops (SIGSTOP) when Session.M is called next, which is in a meeting. A commit is a line of JSON in
FOLDER/log.PID.
"""

import atexit
import hashlib
import json
import math
import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from halay import _session


def linger(path: Path) -> None:
    """A process that takes long to end; a file says when it has."""
    time.sleep(3)
    path.write_text(str(time.time()))


def stop_in(method: str) -> None:
    """Has this process stopped when that of the session is called next."""
    before = getattr(_session.Session, method)

    def stop(*args: Any) -> Any:
        setattr(_session.Session, method, before)
        os.kill(os.getpid(), signal.SIGSTOP)
        return before(*args)

    setattr(_session.Session, method, stop)


class Events:
    """Of this process."""

    def __init__(self, folder: Path, events: list) -> None:
        self.folder, self.events = folder, events
        self.log = (folder / f"log.{os.getpid()}").open("a")

    def before(self, batch: int) -> None:
        for at, rank, what in self.events:
            mark = self.folder / f"event-{at}-{what.replace(' ', '-')}"
            if (at, rank) != (batch, _session.session().rank) or mark.exists():
                continue
            mark.write_text(f"{os.getpid()} {time.time()}")
            if what == "raise":
                raise LookupError("as the test asked for")
            if what == "exit":
                sys.exit(3)
            if what == "wait":  # for somebody to join
                end = time.monotonic() + 60
                while time.monotonic() < end and not _session.session().newcomers():
                    time.sleep(0.02)
            elif what.startswith("stop in "):
                stop_in(what.split()[-1])
            else:
                atexit.register(linger, self.folder / f"lingers-{at}")
                os.kill(os.getpid(), signal.SIGTERM if what == "leave" else signal.SIGKILL)

    def commit(self, meeting: int, batch: int, loss: float, parameters: bytes) -> None:
        """parameters: all of them, bit by bit."""
        of = _session.session()
        line = {"meeting": meeting, "batch": batch, "rank": of.rank, "size": of.size, "loss": loss,
                "sum": hashlib.sha256(parameters).hexdigest(), "time": time.time()}  # fmt: skip
        print(json.dumps(line), file=self.log, flush=True)


def commits_of(folder: Path) -> dict[tuple[int, int], list[dict]]:
    """What all processes have logged, by meeting and batch."""
    found = defaultdict(list)
    for path in folder.glob("log.*"):
        for line in map(json.loads, path.read_text().splitlines()):
            found[line["meeting"], line["batch"]].append({**line, "by": path.suffix})
    return found


def check(commits: dict, losses: list[float], text: str, rel: float = 1e-9) -> int:
    """Equal parameters on all ranks at each commit, and the losses: of the training as it is when
    nothing happens, by batch. How many ranks there were in the end."""
    for (_, batch), lines in commits.items():
        assert len({line["sum"] for line in lines}) == 1, f"batch {batch} differs\n{text}"
        for line in lines:
            wanted = losses[batch - 1]
            assert math.isclose(line["loss"], wanted, rel_tol=rel), (line, wanted, text)
    last = max(commits)
    assert last[1] == len(losses), text
    ranks = sorted(line["rank"] for line in commits[last])
    assert ranks == list(range(commits[last][0]["size"])), text
    return len(ranks)


def events_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("event-*"))
