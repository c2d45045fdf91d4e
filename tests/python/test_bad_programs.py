# SPDX-License-Identifier: Apache-2.0
"""A training program that goes wrong on one rank: what the others, and the user, get to see."""

import json
import os
import socket
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import HERE, halayrun

import halay.torch as hvd

pytestmark = pytest.mark.sampled

RANKS = 3
ODD = 1
# How rank 1 goes wrong: HALAY_DEADLINE; the others' exception; what its text has to say.
WAYS = {
    "raises": (100, hvd.HalayPeerLost, [f"rank {ODD}", "is lost"]),
    "exits": (100, hvd.HalayPeerLost, [f"rank {ODD}", "is lost"]),
    "other model": (100, hvd.HalayMismatch, [f"rank {ODD}: allreduce of [9, 4]", "of [8, 4]"]),
    "more layers": (4, hvd.HalayTimeout, ["not submitted by rank"]),
    "never submits": (4, hvd.HalayTimeout, [f"not submitted by rank {ODD}"]),
}


def model_of(how):
    torch.manual_seed(0)
    odd = hvd.rank() == ODD
    width = 9 if odd and how == "other model" else 8
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 1))
    if odd and how == "more layers":
        model.append(torch.nn.Linear(1, 1))
    return model


def go_wrong(how, model):
    def raises(_):
        raise LookupError("the data ran out")

    if how == "raises":  # in the middle of the backward pass: some gradients are out
        model[0].weight.register_hook(raises)
    if how == "exits":
        sys.exit(0)


def train(how):
    """Three steps are good; then the programme is known."""
    model = model_of(how)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for step in range(6):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).sum()
        if hvd.rank() == ODD and step == 3:
            go_wrong(how, model)
        loss.backward()
        optimizer.step()


def rank_trains(how, folder):
    """Leaves a note of its error. Nobody ends before all have: halayrun would end the rest."""
    rank, expected = hvd.rank(), WAYS[how][1]
    begin, error = time.monotonic(), None
    if rank != ODD or how != "never submits":
        try:
            train(how)
        except BaseException as caught:
            error = caught
    if rank == ODD:
        if how in ("raises", "exits"):  # as its end would do
            hvd.shutdown()
    else:
        note = [type(error).__name__, str(error), isinstance(error, expected)]
        new = Path(folder) / f"new-{rank}"
        new.write_text(json.dumps([*note, time.monotonic() - begin]))
        new.rename(Path(folder) / f"error-{rank}")
    end = time.monotonic() + 60
    while len(list(Path(folder).glob("error-*"))) < RANKS - 1 and time.monotonic() < end:
        time.sleep(0.05)
    os._exit(0)


CASES = [pytest.param(how, marks=pytest.mark.long) if how == "more layers" else how for how in WAYS]


@pytest.mark.sampled
@pytest.mark.parametrize("how", CASES)
def test_all_others_raise(tmp_path, how):
    deadline, expected, says = WAYS[how]
    command = [sys.executable, str(HERE / "rank_main.py"), __name__, "rank_trains"]
    command += [json.dumps([how, str(tmp_path)]), str(tmp_path)]
    status, text = halayrun(RANKS, command, env={"HALAY_DEADLINE": str(deadline)})
    assert status == 0, text
    for rank in set(range(RANKS)) - {ODD}:
        name, verdict, fits, took = json.loads((tmp_path / f"error-{rank}").read_text())
        assert fits, f"{name}: {verdict}"
        assert took < 90, "ended by the deadline, or later"
        for word in [
            *says,
            "tensor 'allreduce.",
            f"[seen by rank {rank} on {socket.gethostname()}]",
        ]:
            assert word in verdict, f"{word!r} is not in {verdict!r}"


def rank_raises(when):
    if hvd.rank() == ODD and when == "in an argument":
        hvd.alltoall(torch.ones(4), splits=[9, 9, 9])
    train("raises")


@pytest.mark.parametrize(
    ("when", "last"),
    [
        ("in the backward pass", "LookupError: the data ran out"),
        ("in an argument", "splits of 27 rows in all"),
    ],
)
def test_the_cause_is_shown_last(tmp_path, when, last):
    """The others print what they saw after it; halayrun shows it once more at the end."""
    command = [sys.executable, str(HERE / "rank_main.py"), __name__, "rank_raises"]
    command += [json.dumps([when]), str(tmp_path)]
    status, text = halayrun(RANKS, command)
    assert status == 1, text
    assert text.count("the first error was that of") == 1
    shown = text.split("halayrun: the first error was that of\n")[1]
    assert shown.startswith(f"rank {ODD} (pid ")
    assert "Traceback (most recent call last):" in shown
    assert "in rank_raises" in shown
    assert last in shown.splitlines()[-1]


def rank_lacks_layer():
    """The others have two gradients that rank 1 has not, and end by the deadline; it waits on."""
    layers = [torch.nn.Linear(4, 4) for _ in range(1 if hvd.rank() == ODD else 2)]
    model = torch.nn.Sequential(*layers)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    hvd.barrier()
    if hvd.rank() == ODD:
        time.sleep(2)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def test_who_lacks_a_layer_blames_nobody(tmp_path):
    command = [sys.executable, str(HERE / "rank_main.py"), __name__, "rank_lacks_layer"]
    env = {"HALAY_DEADLINE": "4", "HALAY_STALL": "0"}
    status, text = halayrun(RANKS, [*command, "[]", str(tmp_path)], env=env)
    assert status == 1 and "HalayPeerLost" not in text, text
    (own,) = (t for t in text.splitlines() if f"[seen by rank {ODD} on" in t and "Halay" in t)
    assert "HalayTimeout" in own and f"not submitted by rank {ODD}" in own, own
    assert "tensor 'allreduce.1." in own, own


def rank_sees_mismatch():
    hvd.allreduce(torch.ones(3 + hvd.rank()), name="x")


def test_an_error_of_all_is_nobodys(tmp_path):
    command = [sys.executable, str(HERE / "rank_main.py"), __name__, "rank_sees_mismatch"]
    status, text = halayrun(2, [*command, "[]", str(tmp_path)])
    assert status == 1 and "HalayMismatch" in text
    assert "the first error was that of" not in text
