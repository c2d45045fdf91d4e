# SPDX-License-Identifier: Apache-2.0
"""monitored_barrier: a barrier over the group's store that says which ranks did not come.

Rank 0 waits for a key of every other rank, and writes what came of it; the others wait for that.
No collective call is made, so the group stays as it is, whoever is missing. An error begins with
the words of Gloo's, which programs look for.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

MOST_S = 0.02  # between two looks; a wait in the store would warn, and hear no signal
WELL = b"well"


def _come(store: Any, keys: list[str], until: float) -> bool:
    """Waits for all of the keys, until then at most."""
    pause = 0.0005
    while not store.check(keys):
        left = until - time.monotonic()
        if left <= 0:
            return False
        pause = min(2 * pause, MOST_S)
        time.sleep(min(pause, left))
    return True


def _absent(store: Any, seconds: float, every: bool, keys: list[str]) -> str:
    absent = [str(rank) for rank, key in enumerate(keys, 1) if not store.check([key])]
    if seconds <= 0 or not absent:  # the last one has come a moment ago
        return "Rank 0 timed out in monitoredBarrier"
    if every and len(absent) > 1:
        return f"Ranks {', '.join(absent)} failed to pass monitoredBarrier"
    more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
    return f"Rank {absent[0]} failed to pass monitoredBarrier{more}"


def _lead(store: Any, seconds: float, every: bool, keys: list[str], over: str) -> str:
    if not keys or _come(store, keys, time.monotonic() + seconds):
        store.set(over, WELL)
        return ""
    words = f"{_absent(store, seconds, every, keys)} after {seconds:.3g} s"
    store.set(over, words)
    return words


def _follow(store: Any, seconds: float, rank: int, key: str, over: str) -> str:
    words = (
        f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
        "for send/recv from rank 0"
    )
    store.set(key, b"")
    if not _come(store, [over], time.monotonic() + seconds):
        return f"{words}: it did not answer after {seconds:.3g} s"
    said = store.get(over)
    return "" if said == WELL else f"{words}: {said.decode()}"


class Monitor:
    """The monitored barriers of one group."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._count = 0

    def _keys(self, count: int) -> tuple[list[str], str]:
        return [f"monitored/{count}/{r}" for r in range(1, self._size)], f"monitored/{count}/over"

    def barrier(self, timeout: datetime.timedelta, every: bool) -> str:
        """What went wrong, in words; "" if all have come."""
        self._count += 1
        seconds, (keys, over) = timeout.total_seconds(), self._keys(self._count)
        if self._rank:
            return _follow(self._store, seconds, self._rank, keys[self._rank - 1], over)
        wrong = _lead(self._store, seconds, every, keys, over)
        if not wrong and self._count > 1:  # all have come to this one: nobody reads the last
            keys, over = self._keys(self._count - 1)
            for key in [*keys, over]:
                self._store.delete_key(key)
        return wrong
