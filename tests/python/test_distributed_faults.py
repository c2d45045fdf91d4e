# SPDX-License-Identifier: Apache-2.0
"""A rank dies, differs, or leaves: the others raise, soon, with who and why."""

import datetime
import os
import signal
import socket
import time

import pytest
import torch
import torch.distributed as dist
from distributed_job import distributed, well
from torch.nn.parallel import DistributedDataParallel

import halay.distributed
from halay.errors import HalayForked, HalayMismatch, HalayPeerLost, HalayTimeout

DEVIATIONS = {
    "count": (lambda odd: dist.all_reduce(torch.ones((17, 19)[odd])), ["17", "19"]),
    "type": (
        lambda odd: dist.all_reduce(torch.ones(5, dtype=(torch.float32, torch.float64)[odd])),
        ["float32", "float64"],
    ),
    "op": (
        lambda odd: dist.all_reduce(torch.ones(5), (dist.ReduceOp.SUM, dist.ReduceOp.MIN)[odd]),
        ["sum", "min"],
    ),
    "root": (lambda odd: dist.broadcast(torch.ones(5), int(odd)), ["0", "1"]),
    "call": (
        lambda odd: dist.barrier() if odd else dist.all_reduce(torch.ones(5)),
        ["barrier", "allreduce"],
    ),
    "asynchronous": (
        lambda odd: dist.all_reduce(torch.ones((17, 19)[odd]), async_op=True).wait(),
        ["17", "19"],
    ),
}


def rank_mismatch():
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, (call, sides) in DEVIATIONS.items():
        for culprit in range(size):
            begin = time.monotonic()
            with pytest.raises(HalayMismatch) as caught:
                call(rank == culprit)
            assert time.monotonic() - begin < 10, "ended by the deadline"
            verdict = caught.value.verdict
            assert all(side in verdict for side in sides), f"{name}: {verdict}"
            verdicts = [None] * size
            dist.all_gather_object(verdicts, verdict)
            assert len(set(verdicts)) == 1, f"{name}: {verdicts}"
    # In a future: an error for C++ as well, with the text.
    work = dist.all_reduce(torch.ones(3 + rank), async_op=True)
    with pytest.raises(RuntimeError, match="allreduce"):
        work.get_future().wait()
    assert isinstance(work.exception(), HalayMismatch) and not work.is_success()
    # DDP's reducer waits in C++ for what differs between the ranks.
    group = dist.new_group(range(size))
    layer = torch.nn.Linear(4, 4)
    wrapped = DistributedDataParallel(layer, process_group=group)
    wrapped.register_comm_hook(rank, different)
    with pytest.raises(RuntimeError, match="allreduce"):
        wrapped(torch.ones(1, 4)).sum().backward()
    return "seen"


def different(rank, bucket):
    data = torch.ones(3 + rank)
    return dist.all_reduce(data, async_op=True).get_future().then(lambda f: f.value()[0])


def test_mismatch(tmp_path):
    assert well(tmp_path, 3, rank_mismatch) == ["seen"] * 3


def rank_death(folder, training):
    rank, victim = dist.get_rank(), dist.get_world_size() - 1
    layer = torch.nn.Linear(8, 8)
    wrapped = DistributedDataParallel(layer)
    data = torch.ones(4)
    dist.all_reduce(data)
    if rank == victim:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        if training:
            wrapped(torch.ones(1, 8)).sum().backward()
        else:
            dist.all_reduce(data)
    assert time.monotonic() - begin < 20
    assert training or isinstance(caught.value, HalayPeerLost)
    text = str(caught.value)
    assert f"rank {victim}" in text and socket.gethostname() in text, text
    # The launcher ends the job when it hears of the death: what was seen is written before.
    with open(os.path.join(folder, f"seen{rank}"), "w") as file:
        file.write(text)
    dist.destroy_process_group()


@pytest.mark.parametrize("training", [pytest.param(False, marks=pytest.mark.long), True])
def test_death(tmp_path, training):
    status, text, _ = distributed(tmp_path, 3, rank_death, str(tmp_path), training)
    assert status != 0
    for rank in (0, 1):
        assert (tmp_path / f"seen{rank}").exists(), text


def rank_absence():
    rank = dist.get_rank()
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(HalayTimeout, match="rank 1"):
            dist.all_reduce(torch.ones(3), group=group)
        assert 1 < time.monotonic() - begin < 15
    else:
        time.sleep(4)
    dist.barrier()
    pid = os.fork()
    if pid == 0:
        try:
            dist.all_reduce(torch.ones(3))
        except HalayForked:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        return "left"
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(3))
    return "stayed"


def test_absence_fork_leaving(tmp_path):
    assert well(tmp_path, 2, rank_absence) == ["stayed", "left"]


def test_wrong_launcher(tmp_path):
    """torch.distributed is told other numbers than Halay's launcher gives."""
    env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    from conftest import HALAYRUN, environment, run

    code = "import halay.distributed, torch.distributed as d; d.init_process_group('halay')"
    import sys

    status, text = run(
        [str(HALAYRUN), "-np", "2", sys.executable, "-c", code], 60, environment(env)
    )
    assert status != 0 and "Halay's launcher says rank" in text, text


def rank_shrink(victims):
    rank = old = dist.get_rank()
    pair = dist.new_group([0, 1])
    layer = torch.nn.Linear(8, 8)
    dist.all_reduce(torch.ones(4))
    for step, victim in enumerate(victims):
        if old == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        size = dist.get_world_size()
        with pytest.raises(RuntimeError):
            if step == 0 and old == 1:  # waits for one that lives, and has gone on
                dist.recv(torch.ones(1), 0, group=pair)
            else:
                DistributedDataParallel(layer)(torch.ones(1, 8)).sum().backward()
                dist.all_reduce(torch.ones(4))
        failed = halay.distributed.shrink()
        assert len(failed) == 1 and dist.get_world_size() == size - 1
        rank, numbers = dist.get_rank(), [None] * (size - 1)
        dist.all_gather_object(numbers, old)
        assert numbers == [r for r in range(2 + len(victims)) if r not in victims[: step + 1]]
    wrapped = DistributedDataParallel(layer)
    wrapped(torch.ones(1, 8)).sum().backward()
    halves = dist.new_group([0])
    assert (rank == 0) == (halves is not dist.GroupMember.NON_GROUP_MEMBER)
    data = torch.full((5,), float(old))
    dist.all_reduce(data)
    return [failed, rank, data[0].item()]


@pytest.mark.parametrize("victims", [[2], pytest.param([3, 0], marks=pytest.mark.long)])
def test_shrink(tmp_path, victims):
    results = well(
        tmp_path, 2 + len(victims), rank_shrink, victims, options=["--keep-going"], timeout=120
    )
    left = [r for r in range(2 + len(victims)) if r not in victims]
    for place, old in enumerate(left):
        assert results[old] == [[victims[-1]], place, sum(left)]
