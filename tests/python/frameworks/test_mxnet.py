# SPDX-License-Identifier: Apache-2.0
"""halay.mxnet: in an environment of its own, and what it says where MXNet is not."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment, halayrun

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("MXNET_PYTHON")


@pytest.mark.long
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.skipif(
    not PYTHON, reason="MXNet wants NumPy < 1.24: MXNET_PYTHON names a Python (docs/mxnet.md)"
)
def test_ranks(nranks):
    """As mxnet_rank.py says."""
    status, text = halayrun(nranks, [str(PYTHON), str(HERE / "mxnet_rank.py")])
    assert status == 0, text


def test_what_is_missing_is_said():
    assert importlib.util.find_spec("mxnet") is None, "it is of another environment's"
    code = "import halay.horovod; halay.horovod.install(); import horovod.mxnet"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )
    assert done.returncode != 0
    said = "needs MXNet 1.9.1, which could not be imported (ModuleNotFoundError: No module named"
    assert said in done.stderr and "'numpy<1.24'" in done.stderr, done.stderr
