#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of horovod-suite: horovod_suite_rank.py FOLDER WITHOUT pytest's arguments...
WITHOUT: names of tests that are not to be run, with commas between."""

import json
import os
import signal
import sys
from pathlib import Path

import horovod_absent
import pytest

horovod_absent.install()  # here: also in processes that multiprocessing spawns


class Log:
    """A pytest plug-in: a line for each test as soon as it has ended; a hang loses no others."""

    def __init__(self, path, without):
        self.file = open(path, "a", buffering=1)  # noqa: SIM115
        self.without = without
        self.parts = []

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.name not in self.without]
        for module in {item.module for item in items if "test_spark" in item.module.__name__}:
            from pyspark import cloudpickle

            cloudpickle.register_pickle_by_value(module)  # ranks could not import it
            if "lightning" in module.__name__:
                del module.XOR.validation_epoch_end  # which Lightning 2 refuses

    def pytest_runtest_logstart(self, nodeid):
        self.file.write(json.dumps([nodeid, "lost", "some ranks did not end it"]) + "\n")
        self.parts = []

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and report.passed:
            return
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        reason = (errors or text.strip().splitlines()[-1:] or [""])[0]
        verdict = [report.nodeid, report.outcome, reason]
        if hasattr(report, "context") and not report.failed:  # of a subTest: TensorFlow's modes
            self.parts.append(verdict)
            return
        skipped = [part for part in self.parts if part[1] == "skipped"]
        if report.passed and skipped and len(skipped) == len(self.parts):
            verdict = skipped[0]
        self.file.write(json.dumps(verdict) + "\n")

    def pytest_runtest_logfinish(self):
        signal.alarm(0)  # test_stall.py leaves its alarm running


def take_old_arguments():
    """Of ray.init(), which newer Rays refuse."""
    import ray

    new = ray.init
    ray.init = lambda *args, _redis_max_memory=None, **kwargs: new(*args, **kwargs)


def main(folder, without, *arguments):
    if any("test_ray" in argument for argument in arguments):
        take_old_arguments()
    log = Log(Path(folder) / f"{os.environ.get('PMIX_RANK', '0')}.log", without.split(","))
    ended = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *arguments], plugins=[log])
    return ended not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
