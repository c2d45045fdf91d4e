# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_AUTOTUNE in a training: it searches, keeps what it finds, and changes no parameter."""

import hashlib
import os
import sys
from pathlib import Path

import pytest
import torch
from conftest import halayrun

pytestmark = pytest.mark.sampled

STEPS = 90


def train() -> None:
    import horovod.torch as hvd

    if os.environ["HOROVOD_RANK"] != os.environ.get("ONLY_RANK", os.environ["HOROVOD_RANK"]):
        os.environ["HOROVOD_AUTOTUNE"] = "0"
    hvd.init()
    torch.manual_seed(3)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, dtype=torch.float64) for _ in range(12)))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    data = torch.Generator().manual_seed(hvd.rank())
    kept, steps = os.environ.get("STEPS"), []
    for step in range(4 * STEPS if "OTHERS" in os.environ else STEPS):
        if "OTHERS" in os.environ and step % 5 == 4:
            hvd.allreduce(torch.ones(3 + step), name="other")
        optimizer.zero_grad()
        model(torch.randn(4, 64, dtype=torch.float64, generator=data)).square().mean().backward()
        optimizer.step()
        flat = torch.cat([p.detach().flatten() for p in model.parameters()])
        if kept:
            steps.append(flat)
    digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    assert set(hvd.allgather_object(digest)) == {digest}
    if hvd.rank() == 0 and kept:
        torch.save(steps, kept)
    hvd.shutdown()


def job(env: dict[str, str]) -> str:
    """What a job of two ranks prints; the parameters after each of its steps are in STEPS."""
    status, text = halayrun(2, ["--horovod", sys.executable, __file__], env=env)
    assert status == 0, text
    return text


def same(found: Path, plain: Path) -> None:
    """Of two ranks no sum has another order: both jobs have the same bits after each step."""
    for step, (a, b) in enumerate(zip(torch.load(found), torch.load(plain), strict=True)):
        where = (a != b).nonzero().flatten().tolist()
        assert not where, (
            f"step {step}: {len(where)} of {len(a)} parameters, {where[0]} to {where[-1]}: "
            f"{a[where[:4]].tolist()}, not {b[where[:4]].tolist()}"
        )


@pytest.fixture
def settings(tmp_path):
    return {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": str(tmp_path / "log.csv"),
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "1",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
        "HALAY_CALIBRATION": str(tmp_path / "kept"),
    }


def test_the_next_job_begins_with_what_was_found(settings, tmp_path):
    plain, found, again = (tmp_path / name for name in ("plain", "found", "again"))
    text = job({"STEPS": str(plain)})
    assert "halay: autotune:" not in text  # a notice of late ranks names this file
    text = job({**settings, "STEPS": str(found)})
    same(found, plain)
    assert text.count("halay: autotune: 24 tensors, 399360 bytes: groups of") == 1
    kept = list((tmp_path / "kept").iterdir())
    assert len(kept) == 1 and f"kept in {kept[0]}" in text
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0].split(",")[-2:] == ["tensor_fusion_threshold", "score"]
    assert len(lines) >= 4 and all(float(line.split(",")[-1]) > 0 for line in lines[1:])

    text = job({**settings, "STEPS": str(again)})
    same(again, plain)
    assert "as kept by an earlier job" in text
    assert (tmp_path / "log.csv").read_text().splitlines() == lines  # nothing was measured


def test_why_nothing_is_tuned(settings):
    for name, value, why in (
        ("ONLY_RANK", "0", "not all ranks have HALAY_AUTOTUNE=1"),
        ("ONLY_RANK", "1", "not all ranks have HALAY_AUTOTUNE=1"),
        ("HALAY_AUTOTUNE", "1,group:4096", "HALAY_AUTOTUNE has group:BYTES"),
        ("HALAY_FUSION", "0", "HALAY_FUSION leaves no room for groups"),
    ):
        text = job({**settings, name: value})
        assert text.count("halay: autotune: ") == 1
        assert f"halay: autotune: nothing is tuned: {why}\n" in text


def test_steps_that_are_never_the_same_for_long_are_said(settings):
    text = job({**settings, "OTHERS": "1", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "8"})
    why = "24 tensors, 399360 bytes: not tuned: too few steps in a row have the same tensors"
    assert text.count("halay: autotune: ") == 1
    assert f"halay: autotune: {why}\n" in text


def test_a_setting_that_makes_no_sense():
    status, text = halayrun(
        2, ["--horovod", sys.executable, __file__], env={"HALAY_AUTOTUNE": "maybe"}
    )
    assert status != 0
    assert "HALAY_AUTOTUNE is 'maybe'; it takes 0 (the default) or 1, or" in text


if __name__ == "__main__":
    train()
