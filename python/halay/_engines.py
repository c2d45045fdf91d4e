# SPDX-License-Identifier: Apache-2.0
"""What the engines share that start a job's processes: who is which rank, where the ranks meet,
and who is lost. Knows neither Ray nor Spark."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import HorovodInternalError


class Where(NamedTuple):
    """Where a process runs. node is unique to its machine: hosts may share a name."""

    node: str
    host: str
    pid: int
    gpus: list[Any]


class Loss(NamedTuple):
    """A worker that has ended: its rank, its host, and why."""

    rank: int
    host: str
    cause: str


class WorkerLost(HorovodInternalError):
    """Workers are lost. rank, host and cause are the first one's, losses has all of them."""

    def __init__(self, losses: list[Loss], others: str) -> None:
        self.losses, self.others = losses, others
        self.rank, self.host, self.cause = losses[0]
        what = "; ".join(f"rank {rank} on {host} is lost: {cause}" for rank, host, cause in losses)
        super().__init__(f"{what}. {others}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.losses, self.others)


COOLDOWN_S = (1.0, 60.0)  # as halayrun's own


class Cooldown:
    """How long a place stays empty after a loss: from first_s to most_s, twice as long each time.

    After a life longer than most_s: as after the first loss.
    """

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._next_s = first_s

    def after(self, lived_s: float) -> float:
        """Seconds."""
        wait_s = self._first_s if lived_s > self._most_s else self._next_s
        self._next_s = min(2 * wait_s, self._most_s)
        return wait_s


def told(summaries: Mapping[int, str], then: str = "") -> str:
    """Of ranks that are not lost but have failed, for WorkerLost. then: what the caller may do."""
    failed = "; ".join(f"rank {rank}: {text}" for rank, text in summaries.items())
    return f"Others that failed: {failed or 'none'}.{' ' if then else ''}{then}"


def reason(errors: Mapping[int, Exception], hosts: Sequence[str]) -> tuple[int, Exception]:
    """Which error of which rank is the reason for the others, which follow in errors.

    What a rank hears from the others is not. The error gets a note of where it comes from.
    """
    ranks = [r for r, e in errors.items() if not isinstance(e, HorovodInternalError)]
    rank = (ranks or [*errors])[0]
    error = errors[rank]
    if hasattr(error, "add_note"):
        error.add_note(f"raised by rank {rank} on {hosts[rank]}")
    return rank, error


def by_node(places: Sequence[Where]) -> list[int]:
    """Their indices, node by node: the first one stays the first."""
    nodes = list(dict.fromkeys(place.node for place in places))
    return sorted(range(len(places)), key=lambda i: nodes.index(places[i].node))


def numbers(rank: int, places: Sequence[Where]) -> dict[str, str]:
    """Variables for programs that read HOROVOD_RANK and the like; hvd.init() makes them exact.

    places: of all ranks.
    """
    nodes = list(dict.fromkeys(place.node for place in places))
    own = places[rank]
    mates = [r for r, place in enumerate(places) if place.node == own.node]
    counts = {
        "HOROVOD_RANK": rank,
        "HOROVOD_SIZE": len(places),
        "HOROVOD_LOCAL_RANK": mates.index(rank),
        "HOROVOD_LOCAL_SIZE": len(mates),
        "HOROVOD_CROSS_RANK": nodes.index(own.node),
        "HOROVOD_CROSS_SIZE": len(nodes),
        "HOROVOD_HOSTNAME": own.node,
    }
    found = {name: str(count) for name, count in counts.items()}
    if own.gpus:  # all of the node's, so that a rank may take the one of its local rank
        found_on = {str(gpu) for r in mates for gpu in places[r].gpus}
        gpus = sorted(found_on, key=lambda gpu: (len(gpu), gpu))
        found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return found


def meeting_place(host: str) -> str:
    """An address of this machine with a port that is free now: rank 0 listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.bind((host, 0))
        port = one.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
