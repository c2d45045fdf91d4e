# SPDX-License-Identifier: Apache-2.0
"""scripts/test --selftest: the runner over small suites of ctest and pytest (selftest_cases.py),
then a run that is ended by a signal."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selftest_cases import CASES, ENDED, MODULE, RUN

SCRIPTS = Path(__file__).resolve().parent

def ctests(folder, tests):
    lines = [f"add_test([=[{name}]=] sh -c [=[cd {folder}; {code}]=])\n"
             f"set_tests_properties([=[{name}]=] PROPERTIES LABELS unit)" for name, code in tests]
    (folder / "build").mkdir()
    (folder / "build/CTestTestfile.cmake").write_text("\n".join(lines))
    return "ctests $PWD/build unit"


def heed():
    """The signals that a run in the background, or under nohup, ignores."""
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


def start(folder, python, body, **env):
    script = RUN.format(scripts=SCRIPTS, python=python, folder=folder, body=body)
    return subprocess.Popen([SCRIPTS / "end-all", "bash", "-c", script], text=True, cwd=SCRIPTS,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**os.environ, "CI": "", **env}, preexec_fn=heed)


def output(run):
    try:
        return run.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        run.terminate()
        return run.communicate()[0]


def alive(folder):
    """The files *.pid of processes that are there."""
    found = []
    for file in folder.glob("*.pid"):
        with contextlib.suppress(OSError):  # it has ended, maybe while it is read
            stat = Path(f"/proc/{file.read_text().strip()}/stat").read_text()
            if stat.rpartition(")")[2].split()[0] not in "ZX":
                found.append(file.name)
    return found


def tried(name, wanted, python, tests, body="", **env):
    """1 if the run does not end as is wanted: its exit status, its last line, and what it says."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text).resolve()
        (folder / "test_made.py").write_text(MODULE)
        run = start(folder, python, "; ".join(filter(None, [ctests(folder, tests), body])), **env)
        said, left = output(run), alive(folder)
    lines, (status, last, *texts) = said.splitlines() or [""], wanted
    ends = (run.returncode, lines[-1]) == (status, last)
    if ends and not left and all(re.search(text, said) for text in texts):
        return 0
    print(f"test --selftest: {name}: not {wanted}, "
          f"exit status {run.returncode}, left: {left}\n{said}")
    return 1


def ended(python, signum):
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text).resolve()
        run, until = start(folder, python, ctests(folder, [("a", ENDED)])), time.monotonic() + 60
        while len(alive(folder)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        there = alive(folder)
        run.send_signal(signum)
        said, left = output(run), alive(folder)
    if run.returncode == 128 + signum and len(there) == 2 and not left:
        return 0
    print(f"test --selftest: {signum.name}: exit status {run.returncode}, "
          f"left: {left} of {there}\n{said}")
    return 1


def main(python):
    wrong = sum(tried(name, wanted, python, tests, body, CI=ci)
                for name, ci, wanted, tests, body in CASES)
    wrong += sum(ended(python, signum) for signum in (signal.SIGTERM, signal.SIGINT))
    print(f"test --selftest: {len(CASES) + 2} runs, {wrong} not as they should be")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
