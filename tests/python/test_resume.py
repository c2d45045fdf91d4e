# SPDX-License-Identifier: Apache-2.0
"""examples/torch_resume.py: interrupted and gone on with, it ends with the same parameters."""

import importlib.util
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import HALAYRUN, environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/torch_resume.py"
EPOCHS = 60


def start(folder, *more):
    saved = ["--checkpoint", str(folder / "saved.pt"), "--epochs", str(EPOCHS)]
    return subprocess.Popen(
        [str(HALAYRUN), "-np", "2", sys.executable, str(EXAMPLE), *saved, *more],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    job = start(tmp_path_factory.mktemp("whole"))
    printed = job.communicate(timeout=120)[0]
    assert job.returncode == 0, printed
    return printed


# How halayrun is told, and how it ends: by its ranks' status, or as by the signal.
@pytest.mark.sampled
@pytest.mark.parametrize(("number", "status"), [(signal.SIGUSR1, 75), (signal.SIGTERM, 143)])
def test_an_interrupted_training_ends_with_the_same_parameters(expected, tmp_path, number, status):
    parts = tmp_path
    job = start(parts, "--logs", str(parts / "logs"))
    end = time.monotonic() + 60
    while not (parts / "saved.pt").exists():
        assert time.monotonic() < end and job.poll() is None, job.communicate()[0]
        time.sleep(0.01)
    job.send_signal(number)
    first = job.communicate(timeout=60)[0]
    assert job.returncode == status, first
    assert "parameters" not in first
    job = start(parts)
    second = job.communicate(timeout=120)[0]
    assert job.returncode == 0, second

    # Each epoch once, with the loss that it has in the whole training.
    losses = re.findall(r"^epoch .*", expected, re.M)
    assert re.findall(r"^epoch .*", first + second, re.M) == losses and len(losses) == EPOCHS
    assert expected.splitlines()[-1] == second.splitlines()[-1]
    assert {one.name for one in parts.iterdir()} <= {"saved.pt", "logs"}
    logged = importlib.util.find_spec("tensorboard") is not None
    assert (parts / "logs").exists() == logged
