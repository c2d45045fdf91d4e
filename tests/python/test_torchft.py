# SPDX-License-Identifier: Apache-2.0
"""halay.torchft: the process group under torchft's manager, and configured by hand."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import pytest
import torch.distributed as dist
from conftest import HERE, environment

pytestmark = pytest.mark.sampled

coordination = pytest.importorskip(
    "torchft.coordination", reason="torchft is not installed: pip install torchft"
)

TIMEOUT_S = 60


@contextlib.contextmanager
def processes(tmp_path):
    """start(name, arguments...), join(name, status): what is left in the end is killed."""
    started = {}

    def start(name, *arguments, **variables):
        command = [sys.executable, str(HERE / "torchft_rank.py"), *map(str, arguments)]
        env = environment({"TIMEOUT_S": str(TIMEOUT_S), **variables})
        env.pop("HALAY_START_DEADLINE", None)  # it would win
        with open(tmp_path / f"out.{name}", "wb") as out:
            started[name] = subprocess.Popen(command, stdout=out, stderr=out, env=env)
        return started[name]

    def join(name, status=0):
        assert started[name].wait(TIMEOUT_S * 2) == status, (tmp_path / f"out.{name}").read_text()

    try:
        yield start, join
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_groups_are_configured_again(tmp_path):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with processes(tmp_path) as (start, join):
        start("alone", "alone", f"127.0.0.1:{store.port}")
        for me in range(3):
            # As torchrun leaves them: of the replica group, not of this one.
            start(me, "groups", f"127.0.0.1:{store.port}", me, tmp_path, RANK="0", WORLD_SIZE="1")
        for me in range(3):
            join(me, 0 if me else -signal.SIGKILL)
        join("alone")


def test_a_replica_comes_and_is_lost(tmp_path):
    def lines(name):
        path = tmp_path / f"log.{name}"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]

    def reaches(name, step, participants):
        end = time.monotonic() + 3 * TIMEOUT_S  # on a busy machine a process starts slowly
        while not any(s >= step and n == participants for s, n, _ in lines(name)):
            assert time.monotonic() < end, (tmp_path / f"out.{name}").read_text()
            time.sleep(0.02)

    done = tmp_path / "done"
    lighthouse = coordination.LighthouseServer(
        bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000, heartbeat_timeout_ms=1000
    )
    at = {"TORCHFT_LIGHTHOUSE": lighthouse.address(), "TORCHFT_TIMEOUT_SEC": str(TIMEOUT_S)}
    try:
        with processes(tmp_path) as (start, join):
            for name in (0, 1):
                start(name, "replica", name, done, tmp_path / f"log.{name}", **at)
            reaches(0, 5, 2)
            victim = start(2, "replica", 2, done, tmp_path / "log.2", **at)
            reaches(0, 10, 3)
            victim.kill()
            reaches(0, lines(0)[-1][0] + 5, 2)
            done.touch()
            for name in (0, 1):
                join(name)
    finally:
        lighthouse.shutdown()
    totals = {}
    for name in (0, 1, 2):
        found = lines(name)[: -1 if name == 2 else None]  # its last step may be nobody else's
        for step, _, total in found:
            assert totals.setdefault(step, total) == total, f"step {step} of {name}"
        repeated = len(found) - len({step for step, _, _ in found})
        assert repeated <= 6, f"replica {name} has discarded {repeated} steps of {len(found)}"
    assert max(totals) > 10
