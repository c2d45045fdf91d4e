# SPDX-License-Identifier: Apache-2.0
"""examples/torch_resume.py: interrupted and gone on with, it ends with the same parameters."""

import importlib.util
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def test_an_interrupted_training_ends_with_the_same_parameters(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    job = start(whole)
    expected = job.communicate(timeout=120)[0]
    assert job.returncode == 0, expected

    job = start(parts, "--logs", str(parts / "logs"))
    end = time.monotonic() + 60
    while not (parts / "saved.pt").exists():
        assert time.monotonic() < end and job.poll() is None, job.communicate()[0]
        time.sleep(0.01)
    job.send_signal(signal.SIGUSR1)
    first = job.communicate(timeout=60)[0]
    assert job.returncode == 75, first
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
