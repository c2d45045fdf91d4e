# SPDX-License-Identifier: Apache-2.0
"""torch's own distributed_test over "halay", as far as it is right over "gloo" here."""

import importlib.util
import json
import sys

import pytest
import torch
from conftest import HERE, environment, run

# What needs a feature that Halay does not have.
BEHIND = {
    "test_send_recv_any_source": "recv from any source",
    "test_send_recv_any_source_autograd_profiler": "recv from any source",
    "test_send_recv_any_source_torch_profiler": "recv from any source",
}
SECONDS = 3000


def outcomes(tmp_path, backend, nranks, names=()):
    results = tmp_path / f"{backend}.json"
    command = [sys.executable, str(HERE / "torch_suite.py"), backend, str(nranks), str(results)]
    status, text = run([*command, *names], SECONDS, environment({"GLOO_SOCKET_IFNAME": "lo"}))
    assert status == 0, text
    return json.loads(results.read_text())


@pytest.mark.long
@pytest.mark.parametrize("nranks", [2, 3, 4])
def test_as_gloo(tmp_path, nranks):
    if importlib.util.find_spec("expecttest") is None:
        pytest.skip("torch's tests want expecttest: pip install expecttest")
    if torch.__version__.split(".")[:2] != ["2", "13"]:
        pytest.skip("the list above is that of torch 2.13")
    gloo = outcomes(tmp_path, "gloo", nranks)
    right = [name for name, text in gloo.items() if text == "ok"]
    assert len(right) > 80, gloo
    halay = outcomes(tmp_path, "halay", nranks, right)
    wrong = {name: halay[name] for name in right if halay[name] != "ok"}
    assert set(wrong) <= set(BEHIND), wrong
