# SPDX-License-Identifier: Apache-2.0
"""init(allgather=): jobs that start by the program's own allgather, and what is said of wrong ones.

tests/job/gather.c has the ways in which ranks may differ.
"""

import shutil
import subprocess
import sys
import time

import pytest
from conftest import SOURCE, environment, run

import halay.torch as hvd
from halay._variables import free_port

EXAMPLES = SOURCE / "examples"


def total_of(size):
    return [float(size * i + size * (size - 1) // 2) for i in range(4)]


def plain():
    """No launcher's variables."""
    env = environment({"HALAY_START_DEADLINE": "60"})
    return {n: v for n, v in env.items() if n not in ("RANK", "WORLD_SIZE", "HALAY_JOB")}


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_plain_processes_with_a_store(tmp_path, kind):
    place = str(tmp_path / "store") if kind == "file" else f"127.0.0.1:{free_port()}"
    command = [sys.executable, EXAMPLES / "torch_store.py"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), "3", place], stdout=subprocess.PIPE, text=True, env=plain()
        )
        for rank in range(3)
    ]
    try:
        texts = [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert texts == [f"rank {rank} of 3: {total_of(3)}\n" for rank in range(3)]


def test_mpi4py():
    pytest.importorskip("mpi4py", reason="the example is over mpi4py (PyPI)")
    mpirun = shutil.which("mpirun") or pytest.skip("the example needs an mpirun")
    command = [mpirun, "-np", "2", sys.executable, str(EXAMPLES / "mpi4py_sum.py")]
    extra = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    extra["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    status, text = run(command, 100, {**plain(), **extra})
    assert status == 0, text
    for rank in range(2):
        assert f"rank {rank} of 2: {total_of(2)}" in text


def test_one_rank_again_and_again():
    records = []

    def allgather(own):
        records.append(own)
        return [own]

    for _ in range(3):
        hvd.init(allgather=allgather, rank=0, size=1)
        assert (hvd.rank(), hvd.size()) == (0, 1)
        hvd.shutdown()
    assert len(set(records)) == 3
    hvd.init()  # as the launcher says, again
    hvd.shutdown()
    assert len(records) == 3


def fails(allgather, size=1):
    with pytest.raises(hvd.HalayError) as caught:
        hvd.init(allgather=allgather, rank=0, size=size)
    assert not hvd.is_initialized()
    return caught.value


def test_an_allgather_that_raises():
    cause = OSError("the store is gone")

    def allgather(own):
        raise cause

    failure = fails(allgather)
    assert "the program's allgather has failed on rank 0" in str(failure)
    assert failure.__cause__ is cause


@pytest.mark.parametrize("parts", [[], [b"short"], [b"a" * 512, b"b" * 512]])
def test_an_allgather_that_gives_something_else(parts):
    failure = fails(lambda own: parts)
    assert "it has to give those of all 1 ranks" in str(failure.__cause__)


def test_an_allgather_that_never_ends(monkeypatch):
    monkeypatch.setenv("HALAY_START_DEADLINE", "1")
    begin = time.monotonic()
    failure = fails(lambda own: time.sleep(300), size=2)
    assert "allgather of 2 ranks has not ended on rank 0" in str(failure)
    assert 1 <= time.monotonic() - begin < 30


def test_another_rank_than_the_launchers(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert "OMPI_COMM_WORLD_SIZE says that there are 2" in str(fails(lambda own: [own]))


@pytest.mark.parametrize("given", [{"rank": 0}, {"rank": 0, "size": 1}, {"allgather": list}])
def test_all_three_or_none(given):
    with pytest.raises(ValueError, match="give all three, or none"):
        hvd.init(**given)
    assert not hvd.is_initialized()
