# SPDX-License-Identifier: Apache-2.0
"""scripts/horovod-suite on a tree of tests made here: its verdicts, and when it skips."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import HALAYRUN, SOURCE, busy, environment

SUITE = SOURCE / "scripts/horovod-suite"
FILE = "test/parallel/test_torch.py"

TESTS = """
import os, signal, time, unittest
import pytest
import horovod.torch as hvd

first = os.environ["HOROVOD_RANK"] == "0"

def test_alike():
    hvd.init()
    assert hvd.size() == 2

def test_on_one_rank():
    assert first, "not | here"

@pytest.mark.skip(reason="no moon")
def test_skipped():
    pass

def test_skipped_on_one_rank():
    if first:
        pytest.skip("not first")

class Modes(unittest.TestCase):
    def test_in_one_mode(self):
        for mode in ("graph", "eager"):
            with self.subTest(mode):
                if mode == "graph":
                    self.skipTest("not in a graph")

    def test_in_no_mode(self):
        for mode in ("graph", "eager"):
            with self.subTest(mode):
                self.skipTest("no moon " + mode)

@pytest.fixture
def bad():
    yield
    assert False, "afterwards"

def test_teardown(bad):
    pass

def test_alarm():
    signal.alarm(1)

def test_after_the_alarm():
    time.sleep(1.5)

def test_killed():
    hvd.init()
    hvd.barrier()  # or a rank that is late would lose the test before
    if not first:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def suite(*arguments):
    done = subprocess.run(
        [sys.executable, str(SUITE), "--halayrun", str(HALAYRUN), *map(str, arguments)],
        env=environment(), capture_output=True, text=True, timeout=240 * busy())  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [[], ["nowhere"]])
def test_without_a_tree_it_skips(arguments):
    status, text = suite(*arguments)
    assert status == 77
    assert text.startswith("SKIP: ")


@pytest.mark.long  # scripts/horovod-suite itself is run by hand alone
def test_verdicts(tmp_path):
    for module in ("mock", "cloudpickle", "packaging"):
        pytest.importorskip(module)
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text(TESTS)
    table = tmp_path / "table.md"
    status, text = suite(tmp_path, "--np", 2, "--only", FILE, "--output", table)
    assert status == 1, text
    rows = dict(line[2:-2].split(" | ", 1) for line in table.read_text().splitlines()
                if line.startswith("| test_"))  # fmt: skip
    assert rows == {
        "test_alike": "passed | ",
        "test_on_one_rank": "failed | AssertionError: not / here",
        "test_skipped": "skipped | Skipped: no moon",
        "test_skipped_on_one_rank": "skipped | Skipped: not first",
        "test_in_one_mode": "passed | ",
        "test_in_no_mode": "skipped | Skipped: no moon graph",
        "test_teardown": "failed | AssertionError: afterwards",
        "test_alarm": "passed | ",
        "test_after_the_alarm": "passed | ",
        "test_killed": "lost | some ranks did not end it",
    }
    assert "4 passed, 2 failed, 3 skipped, 1 lost\n" in text
    status, text = suite(tmp_path, "--np", 2, "--only", FILE, "--output", table, "-k", "alike")
    assert status == 0, text
