# SPDX-License-Identifier: Apache-2.0
"""Programs of other projects over "halay", against the same over "gloo": the numbers are equal.

With two ranks a sum has one value, whoever adds: what both back ends have is compared bit by bit.
scripts/ecosystem makes the environment that has all packages, and runs these with it. A package
that the environment lacks is named in the reason of the skip.
"""

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import HALAYRUN, environment, run

RANK = Path(__file__).with_name("rank.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
LAUNCHERS = {
    "halayrun": [str(HALAYRUN), "-np", "2", sys.executable],
    "torchrun": TORCHRUN,
    "itself": [sys.executable],
}
PROGRAMS = {
    "torch": [
        *("ddp", "ddp_no_sync", "ddp_join", "ddp_hooks", "post_local_sgd", "zero_redundancy"),
        *("fsdp2", "fsdp_class", "tensor_parallel", "checkpoints", "pipeline", "objects"),
        "functional",
    ],
    "accelerate": ["loop", "accumulation", "stop", "local_sgd"],
    "transformers": ["bert", "gpt2"],
    "lightning": ["ddp", "fsdp2", "fabric"],
    "deepspeed": ["zero0", "zero1", "zero2", "zero3"],
    "torchmetrics": ["metrics"],
    "ignite": ["trained"],
}
SHORT = {"accelerate": ["loop"], "transformers": ["bert"]}  # in CI: one launcher, one program
known = {}  # what Gloo's programs returned


def returned(folder, launcher, backend, package, programs):
    """By rank: what each program returned. The job has to end well."""
    if find_spec(package) is None:
        pytest.skip(f"{sys.executable} has no {package}; scripts/ecosystem makes one that has")
    folder.mkdir(exist_ok=True)
    command = [*LAUNCHERS[launcher], str(RANK), backend, str(folder), f"with_{package}", *programs]
    status, text = run(command, 600, environment({"GLOO_SOCKET_IFNAME": "lo"}))
    assert status == 0, f"exit status {status}\n{text}"
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def compared(tmp_path, launcher, package, programs):
    ours = returned(tmp_path / "halay", launcher, "halay", package, programs)
    key = (package, *programs)
    if key not in known:
        known[key] = returned(tmp_path / "gloo", "torchrun", "gloo", package, programs)
    for rank in range(2):
        for name in programs:
            found = ours[rank][name]
            assert found and all(map(math.isfinite, found)), (name, rank, found)
            assert found == known[key][rank][name], (name, rank)


@pytest.mark.sampled
@pytest.mark.parametrize("package", SHORT)
def test_short(tmp_path, package):
    compared(tmp_path, "halayrun", package, SHORT[package])


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["halayrun", "torchrun"])
@pytest.mark.parametrize("package", PROGRAMS)
def test_launched(tmp_path, launcher, package):
    compared(tmp_path, launcher, package, PROGRAMS[package])


@pytest.mark.long
@pytest.mark.parametrize("program", ["ddp", "fabric"])
def test_lightning_starts_ranks_itself(tmp_path, program):
    compared(tmp_path, "itself", "lightning", [program])


@pytest.mark.long
@pytest.mark.parametrize("program", ["ddp_power_sgd", "zero_overlapped"])
def test_where_gloo_fails(tmp_path, program):
    """Callbacks of futures that make calls: the programs compare the ranks' parameters."""
    returned(tmp_path, "halayrun", "halay", "torch", [program])


@pytest.mark.long
def test_versions():
    """Those of scripts/requirements-ecosystem.txt, where scripts/ecosystem has started this."""
    if find_spec("deepspeed") is None:
        pytest.skip(f"{sys.executable} is not the environment of scripts/ecosystem")
    pinned = (RANK.parents[3] / "scripts/requirements-ecosystem.txt").read_text().splitlines()
    there = subprocess.check_output([sys.executable, "-m", "pip", "freeze"], text=True).splitlines()
    assert not [line for line in pinned if "==" in line and line not in there]
