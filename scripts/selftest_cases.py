# SPDX-License-Identifier: Apache-2.0
"""What scripts/test --selftest tries: small suites, and how a run of them has to end."""

RUN = """. {scripts}/suites.sh
cd {folder} && results=$PWD/results python={python}
need_build() {{ return 0; }}
budget=([fake]=0)
part_fake() {{ {body}; }}
parts fake
summary
"""
PASSES, FAILS, LATE = "exit 0", "echo so it went; exit 1", "sleep 1.1"
ONCE = "[ -e again.{0} ] && exit 0; touch again.{0}; echo so it went; exit 1"
LEAVES = "sleep 977 >&- 2>&- & echo $! >left.pid"
ENDED = """setsid sh -c 'sleep 977 & echo $! >new && mv new session.pid; sleep 977' &
echo $! >own.pid
sleep 977"""
MODULE = """import os, pathlib, pytest
def test_passes(): pass
def test_once():
    again = pathlib.Path("again.python")
    if not again.exists():
        again.touch()
        print("printed first")
        raise AssertionError("so it went")
class TestOf:
    @pytest.mark.parametrize("how", ["a b", "[x]"])
    def test_twice(self, how): assert how == "a b"
def test_skipped(): pytest.skip("no such device")
"""
FLAKY = [(f"unit/once-{n}", ONCE.format(n)) for n in range(11)]
MIXED = [("unit/passes", PASSES), FLAKY[0], ("unit/fails.c++", FAILS), ("unit/leaves", LEAVES)]

# name, CI, (exit status, last line, what is said...), tests of ctest, what else the part does
CASES = [
    ("late", "", (0, "1 passed, 0 failed", "fake: . s, budget 0 s"), [("a", LATE)], ""),
    ("late in CI", "true", (1, "1 passed, 1 failed", "twice its budget"), [("a", LATE)], ""),
    ("mixed", "", (
        1, "6 passed, 2 failed, 1 skipped", "skipped .*no such device", "flaky: 2 ",
        "flaky: unit/once-0\n.*: .*/build-unit/unit_once-0\n.*so it went",
        r"FAILED: unit/fails.c\+\+\n", r"alone: .*-R '\^unit/fails\[\.\]c\[\+\]\[\+\]\$'",
        "flaky: test_made.py::test_once\n", "printed first",
        "alone: .*pytest.*test_made.py::TestOf::test_twice"),
     MIXED, "pytests python test_made.py"),
    ("four", "", (1, "4 passed, 1 failed", "4 flaky tests, more than 3"), FLAKY[:4], ""),
    ("many", "", (1, "0 passed, 11 failed"), FLAKY, ""),
    ("none", "", (1, "1 passed, 1 failed", "none: no results"), [("a", PASSES)],
     "single=() runner=(false); suite none $PWD/none.xml"),
    ("signals", "", (0, "1 passed, 0 failed"),
     [("a", "grep -q 'SigIgn:.*[02468ace]..[02468ace]...$' /proc/self/status")], ""),
    ("step", "", (1, "1 passed, 1 failed", "alone: grep -q a\\\\ b"), [("a", PASSES)],
     "step wrong grep -q 'a b'"),
]
