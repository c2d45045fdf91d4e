# SPDX-License-Identifier: Apache-2.0
"""What programs import of horovod.runner and horovod.data: there, or refused with a reason."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time

import pytest
from conftest import environment

from halay.horovod import SHIM, absent
from halay.horovod.data import AsyncDataLoaderMixin, BaseDataLoader

pytestmark = pytest.mark.sampled

# As public programs write it.
PROGRAM = """
import horovod
from horovod import run
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.data.data_loader_base import BaseDataLoader as same
from horovod.runner import _HorovodArgs, run as also
from horovod.runner.launch import _run, _run_elastic, parse_args, run_commandline
from horovod.runner.launch import check_build, gloo_built, mpi_built, nccl_built
from horovod.runner.common.util import codec, config_parser, env, hosts, secret, timeout
from horovod.runner.common.util import safe_shell_exec
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts, SlotInfo
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.elastic import constants
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.util import network
from horovod.runner.util.threads import in_thread
assert run is also and same is BaseDataLoader
assert config_parser.HOROVOD_TIMELINE == "HOROVOD_TIMELINE"

from halay.horovod.absent import ABSENT
import importlib
for name, why in ABSENT.items():
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert str(error) == f"{name} is not there in Halay: {why}", error
    else:
        raise SystemExit(f"{name} is there")
try:
    from horovod.runner.common.util import settings
except ImportError as error:
    print(error)

assert codec.loads_base64(codec.dumps_base64({"a": [1]})) == {"a": [1]}
key = secret.make_secret_key()
digest = secret.compute_digest(key, b"m")
assert len(key) == len(digest) == 32
assert secret.check_digest(key, b"m", digest) and not secret.check_digest(key, b"n", digest)
late = Timeout(0, "cannot {activity}")
try:
    late.check_time_out_for("begin")
except TimeoutException as error:
    assert str(error).startswith("cannot begin"), error
assert late.remaining() == 0 and Timeout(60, "").remaining() > 50
found = get_host_assignments(parse_hosts("a:1,b:2"), 3)
assert found == [
    SlotInfo("a", 0, 0, 0, 3, 1, 2),
    SlotInfo("b", 1, 0, 1, 3, 2, 2),
    SlotInfo("b", 2, 1, 0, 3, 2, 1),
]
assert [s.rank for s in get_host_assignments(parse_hosts("a:2,b:2"), 1, 3)] == [0, 1, 2]
for wrong in (lambda: get_host_assignments(parse_hosts("a:1"), 2), lambda: parse_hosts("a:x"),
              lambda: hosts.parse_hosts_and_slots("a")):
    try:
        wrong()
    except ValueError:
        continue
    raise SystemExit("no ValueError")
"""


def test_as_programs_import_them():
    env = environment()
    env["PYTHONPATH"] = f"{SHIM}:{env['PYTHONPATH']}"
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, text=True,
                          capture_output=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "horovod.runner.common.util.settings is not there in Halay: halayrun" in done.stdout


def test_python_m_launch():
    env = environment()
    env["PYTHONPATH"] = f"{SHIM}:{env['PYTHONPATH']}"
    words = [sys.executable, "-W", "ignore", "-m", "horovod.runner.launch", "-np", "0", "p"]
    done = subprocess.run(words, env=env, text=True, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("horovodrun: ") and done.stderr.count("\n") == 1


def test_reasons_are_one_line():
    assert all(why and "\n" not in why for why in absent.ABSENT.values())


@pytest.fixture
def shell(monkeypatch):
    monkeypatch.syspath_prepend(SHIM)
    path = f"{SHIM}/horovod/runner/common/util/safe_shell_exec.py"
    return __import__("runpy").run_path(path)


def test_shell(shell):
    execute = shell["execute"]
    out, err = io.StringIO(), io.StringIO()
    assert execute("echo a; echo b >&2; printf c; exit 3", stdout=out, stderr=err) == 3
    assert (out.getvalue(), err.getvalue()) == ("a\nc", "b\n")
    out, err = io.StringIO(), io.StringIO()
    assert execute('echo "$A"', env={"A": "x"}, stdout=out, stderr=err, index=4) == 0
    assert out.getvalue() == "[4]<stdout>:x\n"
    event = threading.Event()
    threading.Timer(0.2, event.set).start()
    begin = time.monotonic()
    assert execute("sleep 60 & sleep 60", stdout=out, stderr=err, events=[event]) == 143
    assert time.monotonic() - begin < 30


class Numbers(BaseDataLoader):
    def __init__(self, count=3):
        self.count = count
        self.epochs = 0

    def __len__(self):
        return self.count

    def _iterate(self):
        self.epochs += 1
        for i in range(self.count):
            if i == 5:
                raise LookupError("no fifth")
            yield i

    def _process_batch(self, batch):
        return batch * 10


class Ahead(AsyncDataLoaderMixin, Numbers):
    pass


def test_loader():
    assert list(Numbers()) == [0, 10, 20] and len(Numbers()) == 3
    with pytest.raises(NotImplementedError):
        list(BaseDataLoader())


@pytest.mark.sampled
@pytest.mark.parametrize("size", [0, 1, 64])
def test_loader_that_reads_ahead(size, capsys):
    loader = Ahead(async_loader_queue_size=size, count=3)
    for _ in range(3):
        assert list(loader) == [0, 10, 20]
    loader.close_async_loader()
    assert capsys.readouterr() == ("", "")
    if size:
        assert not loader.thread.is_alive()
        with pytest.raises(RuntimeError, match="make a new loader"):
            list(loader)


def test_loader_that_is_closed_in_the_middle():
    loader = Ahead(async_loader_queue_size=2, count=5)
    batches = iter(loader)
    assert next(batches) == 0
    loader.close_async_loader()
    assert not loader.thread.is_alive() and loader.queue.empty()
    Ahead().close_async_loader()  # one that nobody has begun


def test_loader_whose_reader_fails():
    loader = Ahead(async_loader_queue_size=2, count=9)
    seen = []
    with pytest.raises(LookupError, match="no fifth"):
        seen.extend(iter_into(loader, seen))
    assert seen == [0, 10, 20, 30, 40]
    with pytest.raises(RuntimeError, match="thread has ended"):
        next(iter(loader))
    loader.close_async_loader()


def iter_into(loader, seen):
    for batch in loader:
        seen.append(batch)
    return []
