# SPDX-License-Identifier: Apache-2.0
"""examples/tensorflow2_custom_loop.py: learns on any number of ranks, leaves one checkpoint."""

import re
import sys

import pytest
from conftest import SOURCE, halayrun

pytestmark = pytest.mark.sampled

pytest.importorskip("sklearn", reason="the example's data set comes with scikit-learn")

EXAMPLE = str(SOURCE / "examples" / "tensorflow2_custom_loop.py")
MANY = [pytest.param(n, marks=pytest.mark.long) for n in (1, 3)]


@pytest.mark.parametrize("nranks", [2, *MANY])
def test_on_ranks(tmp_path, nranks):
    checkpoint = tmp_path / "model"
    command = [sys.executable, EXAMPLE, "--checkpoint", str(checkpoint)]
    status, text = halayrun(nranks, command, timeout=300, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert status == 0, text
    assert float(re.search(r"^accuracy: +([\d.]+)%", text, flags=re.M)[1]) >= 95
    assert re.search(rf"^ranks: +{nranks}$", text, flags=re.M)
    assert "bit-identical on all ranks" in text
    assert checkpoint.with_suffix(".index").exists()


def test_batch_that_does_not_divide(tmp_path):
    command = [sys.executable, EXAMPLE, "--batch-size", "7", "--checkpoint", str(tmp_path / "x")]
    status, text = halayrun(2, command, timeout=120)
    assert status != 0
    assert "--batch-size 7 is no multiple of 2 ranks" in text
