# SPDX-License-Identifier: Apache-2.0
"""Timelines of ranks as one: ``python -m halay.timeline merge OUT IN...``.

A rank's clock is aligned with that of rank 0's node when it writes, so files are merged by putting
their events together. A file that was cut off is read up to its last whole line. OUT may end with
.gz; the viewers (ui.perfetto.dev, chrome://tracing) read both.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]


class Damaged(ValueError):
    """Not a timeline of Halay."""


def read(path: str | os.PathLike[str]) -> list[Event]:
    """The events of a file that a rank has written, or merge() has made."""
    name = os.fspath(path)
    with gzip.open(name, "rb") if name.endswith(".gz") else open(name, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    if text.startswith("{"):
        found = json.loads(text)["traceEvents"]
        assert isinstance(found, list)
        return found
    lines = text.splitlines()
    if not lines or lines[0] != "[":
        raise Damaged(f"{name} is not a timeline: it does not begin with a line that is '['")
    events = []
    for number, line in enumerate(lines[1:], 2):
        if line == "]":
            break
        try:
            events.append(json.loads(line.rstrip(",")))
        except json.JSONDecodeError as error:
            if number == len(lines):  # what was being written when the rank ended
                break
            raise Damaged(f"{name}, line {number}: {error}") from None
    return events


def names(events: Sequence[Event]) -> dict[tuple[int, int], str]:
    """The name of each row: (pid, tid). pid is the rank."""
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }


def notes(path: str, events: Sequence[Event]) -> list[str]:
    """What a reader of the file should know."""
    found = []
    ends = [event for event in events if event["name"] == "END"]
    if not ends:
        found.append(f"{path} was cut off: its rank did not end the timeline")
    found += [
        f"{path} lacks {event['args']['lost']} records: its file system did not "
        "keep up, or no processor was idle"
        for event in ends
        if event["args"]["lost"]
    ]
    return found


def merge(out: str, paths: Sequence[str]) -> list[str]:
    """Writes the events of all files into one. Returns what a reader should know."""
    events: list[Event] = []
    remarks: list[str] = []
    owners: dict[int, str] = {}
    for path in paths:
        one = read(path)
        for rank in {event["pid"] for event in one}:
            if rank in owners:
                raise ValueError(f"{owners[rank]} and {path} are both of rank {rank}")
            owners[rank] = path
        remarks += notes(path, one)
        events += one
    with gzip.open(out, "wt") if out.endswith(".gz") else open(out, "w") as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        file.write(",\n".join(json.dumps(event, separators=(",", ":")) for event in events))
        file.write("\n]}\n")
    return remarks


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m halay.timeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    merging = commands.add_parser("merge", help="make one file of the timelines of ranks")
    merging.add_argument("out", metavar="OUT")
    merging.add_argument("paths", metavar="IN", nargs="+")
    args = parser.parse_args(arguments)
    if os.path.abspath(args.out) in map(os.path.abspath, args.paths):
        parser.error(f"OUT is one of those to read: {args.out}")
    try:
        remarks = merge(args.out, args.paths)
    except (OSError, ValueError) as error:
        print(f"halay.timeline: {error}", file=sys.stderr)
        return 1
    for remark in remarks:
        print(f"halay.timeline: {remark}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
