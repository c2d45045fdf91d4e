#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of horovod-suite: horovod_suite_rank.py FOLDER ONLY WITHOUT pytest's arguments...
ONLY and WITHOUT are names of tests, with commas between; an empty ONLY is all."""

import json
import os
import sys
from pathlib import Path

import pytest


class Log:
    """A pytest plug-in: a line for each test as soon as it has ended; a hang loses no others."""

    def __init__(self, path, only, without):
        self.file = open(path, "a", buffering=1)  # noqa: SIM115
        self.only, self.without = only, without

    def pytest_collection_modifyitems(self, items):
        if self.only:
            items[:] = [item for item in items if item.name in self.only]
        items[:] = [item for item in items if item.name not in self.without]

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and report.passed:
            return
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        reason = (errors or text.strip().splitlines()[-1:] or [""])[0]
        self.file.write(json.dumps([report.nodeid, report.outcome, reason]) + "\n")


def main(folder, only, without, *arguments):
    chosen = [set(filter(None, names.split(","))) for names in (only, without)]
    log = Log(Path(folder) / f"{os.environ['PMIX_RANK']}.log", *chosen)
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[log]) > 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
