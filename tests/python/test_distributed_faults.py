# SPDX-License-Identifier: Apache-2.0
"""A rank dies, differs, or leaves: the others raise, soon, with who and why."""

import datetime
import os
import signal
import socket
import sys
import time

import pytest
import torch
import torch.distributed as dist
from conftest import HALAYRUN, environment, run
from distributed_job import distributed, well
from torch.nn.parallel import DistributedDataParallel

import halay.distributed
from halay.errors import (
    HalayForked,
    HalayMismatch,
    HalayPeerLost,
    HalayRevoked,
    HalayTimeout,
)

pytestmark = pytest.mark.sampled

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


def rank_raises(training):
    layer = DistributedDataParallel(torch.nn.Linear(8, 8))
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 1:
        raise KeyError("the data ran out")
    if training:
        layer(torch.ones(1, 8)).sum().backward()
    else:
        dist.all_reduce(torch.ones(4))


@pytest.mark.parametrize("training", [False, True])
def test_the_cause_is_shown_last(tmp_path, training):
    status, text, _ = distributed(tmp_path, 3, rank_raises, training)
    assert status == 1, text
    assert text.count("the first error was that of") == 1, text
    shown = text.split("halayrun: the first error was that of\n")[1]
    assert shown.startswith("rank 1 (pid ") and "in rank_raises" in shown, text
    assert "the data ran out" in shown.splitlines()[-1], text


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


def absent_from_monitored_barriers(rank, group):
    """Rank 1 comes late; the group is as it was."""
    soon, late = datetime.timedelta(seconds=1), datetime.timedelta(seconds=60)
    for every in (False, True):
        dist.monitored_barrier(group, late, wait_all_ranks=every)
    for number in range(2):
        words = "Rank 1 failed to pass monitoredBarrier after 1 s"
        if rank:
            time.sleep(2)
            words = "Rank 1 successfully reached monitoredBarrier, but received .* rank 0: " + words
        begin = time.monotonic()
        with pytest.raises(HalayTimeout, match=words):
            if number:
                dist.monitored_barrier(group, 1.0)
            else:
                group.monitored_barrier(soon)
        assert time.monotonic() - begin < 15
    dist.monitored_barrier(group, late)


def rank_absence():
    rank = dist.get_rank()
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(HalayTimeout, match=" Timed out .*rank 1"):
            dist.all_reduce(torch.ones(3), group=group)
        assert 1 < time.monotonic() - begin < 15
    else:
        time.sleep(4)
    dist.barrier()
    absent_from_monitored_barriers(rank, dist.new_group())
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


INITIALIZED = "import halay.distributed, torch.distributed as d; d.init_process_group('halay'{})"


def initialized(how, variables):
    command = [str(HALAYRUN), "-np", "2", sys.executable, "-c", INITIALIZED.format(how)]
    return run(command, 60, environment(variables))


def test_wrong_launcher():
    """torch.distributed is told other numbers than Halay's launcher gives."""
    status, text = initialized(", store=d.HashStore(), rank=0, world_size=1", {})
    assert status != 0 and "Halay's launcher says rank" in text, text


def test_variables_of_a_job_around():
    """halayrun's ranks have their own, not those that it was started with."""
    env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    status, text = initialized("", env)
    assert status == 0, text


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


def rank_groups_apart():
    """The others train on in a group of which the one that shrinks is not; one of them waits."""
    old = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dist.all_reduce(torch.ones(4))
    if old == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(HalayPeerLost if old == 3 else HalayRevoked) as caught:
        while time.monotonic() - begin < 60:
            if old == 1:
                time.sleep(0.5)
            dist.all_reduce(torch.ones(4), group=groups[old // 2])
    assert old == 3 or time.monotonic() - begin < 20
    failed = halay.distributed.shrink()
    assert failed == [2] and dist.get_world_size() == 3
    dist.barrier()
    rest = dist.new_group([1, 2])
    last = ""
    if old:
        with pytest.raises(HalayMismatch) as numbered:
            dist.all_reduce(torch.ones(old), group=rest)
        last = str(numbered.value)
    return [str(caught.value), last]


def test_shrink_calls_other_groups(tmp_path):
    results = well(tmp_path, 4, rank_groups_apart, options=["--keep-going"], timeout=120)
    where = socket.gethostname()
    assert f"rank 0 of 2 (rank 2 of the job) on {where} is lost" in results[3][0], results
    for old in (0, 1):
        text = results[old][0]
        assert "revoked by rank 3 of 4 on " in text, text
        assert f"which has seen rank 2 on {where} fail (" in text, text
        assert "halay.distributed.shrink()" in text, text
    for old in (1, 3):
        text = results[old][1]
        assert "rank 0 (rank 1 of the job)" in text and "rank 1 (rank 3 of the job)" in text, text
    assert f"[seen by rank 2 (rank 3 of the job) on {where}]" in results[3][1], results


def rank_store_is_gone():
    """The new rank 0 dies when it has told the others where its store is."""
    from halay.distributed import _recover, _start

    old, meet, store = dist.get_rank(), _recover.rendezvous, _start._store

    def meet_and_die():
        meet()
        os.kill(os.getpid(), signal.SIGKILL)

    def store_late(*args):
        time.sleep(1)
        return store(*args)

    if old == 0:
        _recover.rendezvous = meet_and_die
    else:
        _start._store = store_late
    if old == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(HalayPeerLost):
        dist.all_reduce(torch.ones(4))
    begin = time.monotonic()
    failed = halay.distributed.shrink()
    took = time.monotonic() - begin
    dist.barrier()
    return [failed, dist.get_rank(), took]


@pytest.mark.long
def test_shrink_without_its_store(tmp_path):
    results = well(tmp_path, 4, rank_store_is_gone, options=["--keep-going"], timeout=120)
    for place, old in enumerate([1, 2]):
        failed, rank, took = results[old]
        assert failed == [0, 3] and rank == place
        assert took < 30, "it waited for torch's time-out"


def rank_name_is_unknown():
    from halay.distributed import _start

    _start._unresolved = lambda host: "halay: no such name"
    if dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(HalayPeerLost):
        dist.all_reduce(torch.ones(4))
    with pytest.raises(RuntimeError, match="no such name"):
        halay.distributed.shrink()
    return True


def test_shrink_where_names_are_unknown(tmp_path):
    results = well(tmp_path, 3, rank_name_is_unknown, options=["--keep-going"], timeout=60)
    assert results[:2] == [True, True]
