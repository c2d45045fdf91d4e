# SPDX-License-Identifier: Apache-2.0
"""torch's own distributed_test over a back end: torch_suite.py BACKEND RANKS RESULTS [TEST...]

RESULTS becomes a JSON object: for each test "ok", "skipped: REASON" or "failed: TEXT".
Each back end is tested as Gloo is. torch's runner starts Python anew
for each rank of each test; here they are forked.
"""

import json
import logging
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

BACKEND, RANKS, RESULTS, *NAMES = sys.argv[1:]
FOLDER = tempfile.TemporaryDirectory()
os.environ.update(BACKEND="gloo", WORLD_SIZE=RANKS, TEMP_DIR=FOLDER.name)
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")
for _name in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(FOLDER.name, _name))

import torch.multiprocessing  # noqa: E402
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402

import halay.distributed  # noqa: E402, F401


class Name(str):
    """Of the back end; a test that asks whether it is Gloo goes Gloo's way."""

    def __eq__(self, other):
        return other in (str(self), "gloo")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(str(self))


suite.BACKEND = Name(BACKEND)


class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Results(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.of, self.began = {}, 0.0

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def _put(self, test, text):
        name = test.id().rsplit(".", 1)[-1]
        self.of[name] = text
        line = text.strip().splitlines()[-1][:150]
        print(f"{name} {time.monotonic() - self.began:.1f} s: {line}", flush=True)
        Path(RESULTS).write_text(json.dumps(self.of, indent=1))

    def addSuccess(self, test):
        self._put(test, "ok")

    def addSkip(self, test, reason):
        self._put(test, f"skipped: {reason}")

    def addError(self, test, err):
        self._put(test, f"failed: {self._exc_info_to_string(err, test)}")

    addFailure = addError  # noqa: N815


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    names = NAMES or unittest.TestLoader().getTestCaseNames(Suite)
    unittest.TestSuite(map(Suite, names)).run(Results())
