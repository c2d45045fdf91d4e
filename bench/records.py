# SPDX-License-Identifier: Apache-2.0
"""What the comparisons have measured, for other programs: measured.csv in --out, which only grows. A row is one size of
one run; bench/tables reads it. The date is when the comparison started: with it a round has one number only."""

import csv
import datetime
import functools
import re
import subprocess
from pathlib import Path

FIELDS = ("date", "commit", "mode", "collective", "ranks", "bytes", "variant", "round", "microseconds", "others")
STARTED = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
ROOT = Path(__file__).resolve().parents[1]


def source(build):
    """The tree that a build folder was made of."""
    cache = build / "CMakeCache.txt"
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", cache.read_text() if cache.exists() else "", re.M)
    return Path(found[1]) if found else ROOT


@functools.cache
def commit(build):
    """That of the build's tree, with a + where the tree has other changes."""
    def git(*words):
        try:
            command = ["git", "-C", source(build), "-c", "safe.directory=*", *words]
            return subprocess.run(command, capture_output=True, text=True).stdout.strip()
        except OSError:
            return ""

    return git("log", "-1", "--format=%h") + "+" * bool(git("status", "--porcelain", "--", "src", "transports"))


def append(args, collective, ranks, number, variant, rows, cores):
    """What a run has measured; cores: what others took."""
    path = args.out / "measured.csv"
    fresh = not path.exists()
    build = args.old if args.old and variant.startswith("halay-old") else args.build
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(FIELDS)
        for row in rows:
            case, name = args.labels(collective, variant, row)
            us = row["us"] if "us" in row else row[args.statistic + "_us"]
            writer.writerow([STARTED, commit(build), args.mode, case, ranks, row.get("bytes", 0), name, number, us,
                             f"{cores:.3f}"])
