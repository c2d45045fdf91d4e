# SPDX-License-Identifier: Apache-2.0
"""Hosts, and which rank is where on them: ranks fill the hosts in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "INVALID_SLOT_INFO",
    "HostInfo",
    "SlotInfo",
    "get_host_assignments",
    "parse_host_files",
    "parse_hosts",
    "parse_hosts_and_slots",
]


def _split(text: str) -> tuple[str, int]:
    name, _, slots = text.strip().partition(":")
    if not name or not slots.isdecimal():
        raise ValueError(f"{text!r} is no host:slots")
    return name, int(slots)


class HostInfo:
    """A host and its places."""

    def __init__(self, hostname: str, slots: int) -> None:
        self.hostname = hostname
        self.slots = slots

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Of "host:slots". ValueError: it is none."""
        return HostInfo(*_split(host_string))


@dataclass
class SlotInfo:
    """Where a rank is."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """Its numbers, with commas between."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size)
        return ",".join(map(str, (*numbers, self.cross_rank, self.cross_size)))


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Of "host:slots,..."."""
    return [HostInfo.from_string(text) for text in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The names in their order, and the places of each."""
    found = [_split(text) for text in hosts.split(",")]
    return [name for name, _ in found], dict(found)


def parse_host_files(filename: str) -> str:
    """ "host:slots,..." of a file of lines "host slots=N". ValueError: another line."""
    found = []
    for number, line in enumerate(Path(filename).read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not words[1].startswith("slots="):
            raise ValueError(f"{filename}:{number}: {line!r} is no host with slots=N")
        found.append("{}:{}".format(*_split(f"{words[0]}:{words[1][len('slots=') :]}")))
    return ",".join(found)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Where each rank is, by rank. ValueError: there are fewer than min_num_proc places."""
    places = [(i, local) for i, host in enumerate(hosts) for local in range(host.slots)]
    places = places[:max_num_proc]
    if len(places) < min_num_proc:
        raise ValueError(f"{min_num_proc} processes are more than the {len(places)} places")
    local_sizes = Counter(i for i, _ in places)
    cross_sizes = Counter(local for _, local in places)
    seen: Counter[int] = Counter()
    found = []
    for rank, (i, local) in enumerate(places):
        found.append(
            SlotInfo(
                hostname=hosts[i].hostname,
                rank=rank,
                local_rank=local,
                cross_rank=seen[local],
                size=len(places),
                local_size=local_sizes[i],
                cross_size=cross_sizes[local],
            )
        )
        seen[local] += 1
    return found
