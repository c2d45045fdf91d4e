# SPDX-License-Identifier: Apache-2.0
"""Where the build is, and `job`: runs a function of a test module on N ranks under halayrun.

A rank imports torch for 2 s, so functions that want nothing special share a job, one after the
other (Shared): each between an init() and a shutdown() of its own. After a failure the job is new.

HALAY_BUILD_DIR names the build tree (default: build/ of the source tree).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
BUILD = Path(os.environ.get("HALAY_BUILD_DIR", SOURCE / "build")).resolve()
HALAYRUN = BUILD / "bin" / "halayrun"

# Numbers of ranks for a test whose cases differ little between them: an even one, or an odd one, is
# enough for CI.
RANKS = [2, pytest.param(3, marks=pytest.mark.long)]
ODD_RANKS = [pytest.param(2, marks=pytest.mark.long), 3]

os.environ.setdefault("HALAY_CALIBRATION", "off")  # not the developer's own
os.environ.setdefault("HALAY_LIBRARY", str(BUILD / "lib" / "libhalay.so.0"))
sys.path.insert(0, str(SOURCE / "python"))
sys.path.append(str(SOURCE / "scripts"))
from sample import chosen  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: run by scripts/test --all only")
    config.addinivalue_line("markers", "sampled: scripts/test takes a third, by the date")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a run in the background; and so would
        signal.signal(signal.SIGINT, signal.default_int_handler)  # all that it starts


@pytest.hookimpl(trylast=True)  # after -m
def pytest_collection_modifyitems(config, items):
    """Of tests that are marked: a third of the parameters of each, and of a file's others."""
    names = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            alone = "[" not in item.nodeid
            names[item] = f"{item.path.stem}[{item.nodeid}" if alone else item.nodeid
    out = set(names.values()) - set(chosen(list(names.values())))
    config.hook.pytest_deselected(items=[item for item in items if names.get(item) in out])
    items[:] = [item for item in items if names.get(item) not in out]


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Of a subprocess: finds this source tree's package, and does not fight for the cores."""
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", **(extra or {}))
    env["PYTHONPATH"] = os.pathsep.join(map(str, [SOURCE / "python", HERE, HERE / "frameworks"]))
    return env


def end(process: subprocess.Popen) -> None:
    """Ends what still runs: halayrun takes its ranks along when it is asked to."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def busy() -> float:
    """How many times longer a process takes on this machine now: 1 up to two for a processor."""
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


def run(command: list[str], timeout: float, env: dict[str, str]) -> tuple[int, str]:
    """Exit status and output. What is still there at the time-out, which is longer on a busy
    machine, is ended, and it is a failure."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        late = False
        try:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.wait(timeout * (busy() - 1))
        except subprocess.TimeoutExpired:
            late = True
        finally:
            end(process)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if late:
        pytest.fail(f"not done after {timeout} s: {' '.join(command)}\n{text}")
    return process.returncode, text


def halayrun(
    nranks: int, command: list[str], timeout: float = 180, env: dict[str, str] | None = None
) -> tuple[int, str]:
    if not HALAYRUN.exists():
        pytest.fail(f"{HALAYRUN} is not there: build first, or set HALAY_BUILD_DIR")
    return run([str(HALAYRUN), "-np", str(nranks), *command], timeout, environment(env))


class Shared:
    """A job whose ranks run one function after the other."""

    jobs: dict[int, Shared] = {}  # noqa: RUF012

    def __init__(self, nranks: int) -> None:
        self.nranks, self.folder = nranks, Path(tempfile.mkdtemp())
        self.output = (self.folder / "output").open("w+b")
        (self.folder / "calls").touch()
        ranks = [sys.executable, str(HERE / "rank_main.py"), str(self.folder), str(os.getpid())]
        self.process = subprocess.Popen(
            [str(HALAYRUN), "-np", str(nranks), *ranks],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )

    @classmethod
    def of(cls, nranks: int) -> Shared:
        if nranks not in cls.jobs:
            cls.jobs[nranks] = cls(nranks)
        return cls.jobs[nranks]

    def call(self, text: str, done: list[Path], timeout: float) -> None:
        begin, late = self.output.seek(0, os.SEEK_END), time.monotonic() + timeout
        with (self.folder / "calls").open("a") as calls:
            calls.write(text + "\n")
        while not all(path.exists() for path in done):
            if self.process.poll() is not None or time.monotonic() > late:
                del self.jobs[self.nranks]
                status = self.close()
                self.output.seek(begin)
                said = self.output.read().decode("utf-8", "replace")
                pytest.fail(f"exit status {status}, not done within {timeout} s\n{said}")
            time.sleep(0.005)

    def close(self) -> int:
        end(self.process)
        shutil.rmtree(self.folder)
        return self.process.returncode


def pytest_sessionfinish():
    for shared in Shared.jobs.values():
        shared.close()


@pytest.fixture
def job(tmp_path):
    """job(nranks, function, *args, own=..., env=..., timeout=...): what it returned, by rank.

    The function and its arguments are looked up by name and sent as JSON. It is called after
    hvd.init(), on every rank; any exception on any rank fails the test. `own`, as with `env`: the
    processes run nothing else, before or after.
    """

    def start(nranks, function, *args, own=False, env=None, timeout=180):
        call = [function.__module__, function.__name__]
        results = [tmp_path / f"{rank}.json" for rank in range(nranks)]
        for path in results:
            path.unlink(missing_ok=True)
        if own or env:
            command = [sys.executable, str(HERE / "rank_main.py"), *call]
            command += [json.dumps(args), str(tmp_path)]
            status, text = halayrun(nranks, command, timeout, env)
            assert status == 0, f"exit status {status}\n{text}"
        else:
            Shared.of(nranks).call(json.dumps([*call, args, str(tmp_path)]), results, timeout)
        return [json.loads(path.read_text()) for path in results]

    return start


@pytest.fixture
def alone():
    """An initialized halay.torch with one rank: this process."""
    import halay.torch as hvd

    hvd.init()
    yield hvd
    hvd.shutdown()


@pytest.fixture(scope="session")
def spark_context(tmp_path_factory):
    """Of a Spark of two executors; the tests of one module after the other's use it."""
    from spark_bed import cluster

    with cluster(tmp_path_factory.mktemp("events")) as context:
        yield context
