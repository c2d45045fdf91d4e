# SPDX-License-Identifier: Apache-2.0
"""Notices of which rank has not submitted what, by that rank, with the lines of the program."""

import os
import re
import signal
import sys
import time

import pytest
import torch
from conftest import RANKS, halayrun

import halay.torch as hvd

pytestmark = pytest.mark.sampled

HERE = os.path.basename(__file__)


def rank_late():
    """The last rank computes for long before it submits what the others wait for."""
    for step in range(2):
        if step == 1 and hvd.rank() == hvd.size() - 1:
            time.sleep(2)
        hvd.allreduce(torch.ones(4), name="gradient")
    if hvd.rank() == hvd.size() - 1:
        time.sleep(1.5)
    hvd.allreduce(torch.ones(4))


def rank_stopped():
    """The last rank is stopped, as by a debugger; it cannot answer."""
    pids = hvd.allgather_object(os.getpid())
    if hvd.rank() == hvd.size() - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(4), name="unanswered")
        time.sleep(2.5)
        os.kill(pids[-1], signal.SIGCONT)
        hvd.synchronize(handle)
        return
    hvd.allreduce(torch.ones(4), name="unanswered")


def rank_backward():
    """The hook of a gradient runs below backward(): the line is that of the program."""
    model = torch.nn.Linear(4, 4)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    if hvd.rank() == 0:
        time.sleep(1.5)
    model(torch.ones(4)).sum().backward()  # BACKWARD
    optimizer.step()


def output(nranks, function, tmp_path, env):
    arguments = ["test_stall", function.__name__, "[]", str(tmp_path)]
    main = os.path.join(os.path.dirname(__file__), "rank_main.py")
    status, text = halayrun(nranks, [sys.executable, main, *arguments], 100, env)
    assert status == 0, text
    return text


def line_of(source):
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if source in line)


@pytest.mark.parametrize("nranks", RANKS)
def test_late_rank(nranks, tmp_path):
    text = output(nranks, rank_late, tmp_path, {"HALAY_STALL": "0.5"})
    last, named = nranks - 1, line_of('name="gradient")')
    unnamed = line_of("hvd.allreduce(torch.ones(4))")
    for rank in range(nranks):
        start = f"halay: rank {rank}: 'allreduce.gradient' not submitted by rank {last} "
        lines = [part for part in text.splitlines() if start in part]
        assert bool(lines) == (rank == last), text
    for line in lines:
        place = rf"rank \d has waited for [\d.]+ s \(\S*{HERE}:{named}\)"
        assert re.search(place, line), line
        before = rf"submitted it before, first at \S*{HERE}:{named}"
        assert re.search(before, line), line
    assert re.search(rf"'allreduce.noname.0' not submitted.*{HERE}:{unnamed}\)", text), text


def test_stopped_rank(tmp_path):
    text = output(2, rank_stopped, tmp_path, {"HALAY_STALL": "0.5"})
    notice = r"has waited for [\d.]+ s: rank 1 of 2 on \S+ is stopped \(SIGSTOP"
    assert re.search(notice, text), text


def test_hook(tmp_path):
    text = output(2, rank_backward, tmp_path, {"HALAY_STALL": "0.5"})
    line = line_of("BACKWARD")
    assert re.search(rf"not submitted by rank 0 .*{HERE}:{line}\)", text), text


@pytest.mark.long
def test_off(tmp_path):
    text = output(2, rank_late, tmp_path, {"HALAY_STALL": "0"})
    assert "not submitted" not in text
