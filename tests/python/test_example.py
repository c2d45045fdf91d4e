# SPDX-License-Identifier: Apache-2.0
"""examples/torch_digits.py: learns, on any number of ranks, and leaves one checkpoint."""

import json
import re
import sys

import pytest
import torch
from conftest import SOURCE, environment, halayrun, run

pytestmark = pytest.mark.sampled

pytest.importorskip("sklearn", reason="the example's data set comes with scikit-learn")

EXAMPLE = str(SOURCE / "examples" / "torch_digits.py")


def accuracy_of(text):
    return float(re.search(r"^accuracy: +([\d.]+)%", text, flags=re.M)[1])


def test_alone_without_a_launcher(tmp_path):
    checkpoint = tmp_path / "model.pt"
    command = [sys.executable, EXAMPLE, "--checkpoint", str(checkpoint)]
    status, text = run(command, 300, environment())
    assert status == 0, text
    assert accuracy_of(text) >= 95
    assert re.search(r"^ranks: +1$", text, flags=re.M)
    assert len(torch.load(checkpoint)) == 8


MANY = [pytest.param(n, marks=pytest.mark.long) for n in (3, 4, 8)]


@pytest.mark.parametrize("nranks", [pytest.param(1, marks=pytest.mark.long), 2, *MANY])
def test_on_ranks(tmp_path, nranks):
    checkpoint, timeline = tmp_path / "model.pt", tmp_path / "timeline.json"
    command = [sys.executable, EXAMPLE, "--checkpoint", str(checkpoint)]
    command += ["--timeline", str(timeline)]
    status, text = halayrun(nranks, command, timeout=500)
    assert status == 0, text
    assert accuracy_of(text) >= 95
    assert re.search(rf"^ranks: +{nranks}$", text, flags=re.M)
    assert "bit-identical on all ranks" in text
    assert checkpoint.exists()
    events = json.loads((tmp_path / "timeline.json.all").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == set(range(nranks))
    if nranks > 1:
        rows = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert "allreduce.fc2.weight" in rows
        overlapping = int(re.search(r"in (\d+) of \d+ steps", text)[1])
        assert overlapping > 0


def test_batch_that_does_not_divide(tmp_path):
    command = [sys.executable, EXAMPLE, "--batch-size", "7", "--checkpoint", str(tmp_path / "x")]
    status, text = halayrun(2, command, timeout=120)
    assert status != 0
    assert "--batch-size 7 is no multiple of 2 ranks" in text
