# SPDX-License-Identifier: Apache-2.0
"""A stock JAX whose collectives are Halay's: MPITRAMPOLINE_LIB=libhalay_mpi.so."""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import BUILD, environment, halayrun, run

pytestmark = pytest.mark.sampled

RANK = str(Path(__file__).with_name("jax_mpi_rank.py"))
JAX = {
    "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi",
    "MPITRAMPOLINE_LIB": str(BUILD / "lib" / "libhalay_mpi.so"),
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "",
    "JAX_NUM_CPU_DEVICES": "1",
    "HALAY_DEADLINE": "60",
}
SOON = {"HALAY_DEADLINE": "4"}


def coordinator() -> str:
    """An address that nobody uses, for JAX's own service in rank 0."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def ranks(nranks: int, *cases: str, env: dict[str, str] | None = None, status: int = 0) -> str:
    command = [sys.executable, RANK, coordinator(), *cases]
    with tempfile.TemporaryDirectory() as folder:
        env = {**JAX, "TEST_FOLDER": folder, **(env or {})}
        got, text = halayrun(nranks, command, 240, env)
    assert got == status, f"exit status {got}\n{text}"
    for rank in range(nranks) if status == 0 else ():
        assert f"rank {rank}: {cases[-1]}" in text, text
    return text


VALUES = ["types", "half", "collectives", "axes", "partitioned", "threads", "again", "unlooked"]


def test_values_of_two():
    ranks(2, *VALUES)


def test_values_of_four_in_a_grid():
    ranks(4, "collectives", "axes", "partitioned", "threads", "unlooked")


@pytest.mark.long
@pytest.mark.parametrize("nranks", [4, 8])
def test_values_of_more(nranks):
    ranks(nranks, *VALUES)


@pytest.mark.long
def test_with_halay_torch_before_and_after():
    ranks(2, "torch_first")
    ranks(2, "torch_later")


def test_a_rank_that_dies_is_named():
    text = ranks(3, "dies", env=SOON, status=137)
    assert text.count("is lost") >= 2, text


def test_a_rank_that_raises_is_named():
    text = ranks(2, "raises", status=1)
    assert "ValueError: of rank 1" in text, text


def test_a_rank_that_does_not_come_is_named():
    ranks(2, "sleeps", env=SOON)


@pytest.mark.parametrize("nranks, case", [(2, "reversed_devices"), (4, "other_axis")])
def test_other_communicators_on_one_rank(nranks, case):
    ranks(nranks, case, env=SOON)


def test_a_mesh_of_which_the_others_do_not_know():
    ranks(3, "part_of_the_job", env=SOON)


def test_several_devices_a_process():
    ranks(2, "many_devices", env={**SOON, "JAX_NUM_CPU_DEVICES": "2"})


def test_processes_that_halay_does_not_know_to_be_one_job(tmp_path):
    address, folder, processes = coordinator(), str(tmp_path), []
    for rank in range(2):
        env = environment({**JAX, **SOON, "TEST_PLACE": f"{rank} 2", "TEST_FOLDER": folder})
        command = [sys.executable, RANK, address, "alone"]
        processes.append(subprocess.Popen(command, env=env, stderr=subprocess.STDOUT,
                                          stdout=subprocess.PIPE, text=True))  # fmt: skip
    try:
        texts = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], texts


def test_no_job_is_told_by_each_collective():
    ranks(2, "no_job", env={**SOON, "HALAY_DEBUG": "abacus"})


# ------------------------------------------------------------------ the library by itself

ALONE = """
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1])
number, length, text = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(1024)
word = lambda name: ctypes.c_size_t(ctypes.c_size_t.in_dll(mpi, "MPIABI_" + name).value)
world = word("COMM_WORLD")

def why(code):
    assert code
    mpi.MPIABI_Error_string(code, text, ctypes.byref(length))
    assert length.value == len(text.value)
    return text.value.decode()

assert "MPI_Init was not called" in why(mpi.MPIABI_Comm_rank(world, ctypes.byref(number)))
mpi.MPIABI_Initialized(ctypes.byref(number)); assert number.value == 0
assert mpi.MPIABI_Init_thread(None, None, 1, ctypes.byref(number)) == 0
assert number.value == ctypes.c_int.in_dll(mpi, "MPIABI_THREAD_MULTIPLE").value
mpi.MPIABI_Is_thread_main(ctypes.byref(number)); assert number.value == 1
assert mpi.MPIABI_Init_thread(None, None, 1, None) == 0
mpi.MPIABI_Wtime.restype = ctypes.c_double; assert mpi.MPIABI_Wtime() > 0
own, total = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)()
sum_, float_ = word("SUM"), word("FLOAT")
assert mpi.MPIABI_Allreduce(own, total, 4, float_, sum_, world) == 0 and list(total) == [1, 2, 3, 4]
assert mpi.MPIABI_Allreduce(own, own, 4, float_, sum_, world) == 0 and list(own) == [1, 2, 3, 4]
assert "31 bits" in why(mpi.MPIABI_Allreduce(own, total, -5, float_, sum_, world))
long_double = word("LONG_DOUBLE")
assert "MPI_LONG_DOUBLE" in why(mpi.MPIABI_Allreduce(own, total, 1, long_double, sum_, world))
assert "MPI_MAXLOC" in why(mpi.MPIABI_Allreduce(own, total, 1, float_, word("MAXLOC"), world))
assert "not MPI's" in why(mpi.MPIABI_Allreduce(own, total, 1, ctypes.c_size_t(9999), sum_, world))
assert "MPI_COMM_NULL" in why(mpi.MPIABI_Allreduce(own, total, 1, float_, sum_, word("COMM_NULL")))
assert "MPI_COMM_SELF" in why(mpi.MPIABI_Allreduce(own, total, 1, float_, sum_, word("COMM_SELF")))
request = ctypes.c_size_t()
isend = lambda peer, tag: mpi.MPIABI_Isend(own, 1, float_, peer, tag, world, ctypes.byref(request))
assert "no rank 5" in why(isend(5, 0))
assert "tag 3" in why(isend(0, 3))
assert "itself" in why(isend(0, 0))
assert isend(ctypes.c_int.in_dll(mpi, "MPIABI_PROC_NULL").value, 0) == 0
assert mpi.MPIABI_Wait(ctypes.byref(request), None) == 0
split = ctypes.c_size_t()
assert "no launcher" in why(mpi.MPIABI_Comm_split(world, 0, 0, ctypes.byref(split)))
assert "no launcher" in why(mpi.MPIABI_Allreduce(own, total, 1, float_, sum_, split))
import subprocess
names = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], capture_output=True, text=True)
functions = [line.split()[2] for line in names.stdout.splitlines() if line.split()[1] == "T"]
kept = {"Init Init_thread Initialized Finalize Finalized Abort Is_thread_main Query_thread",
        "Get_version Get_library_version Comm_rank Comm_size Comm_split Comm_free Allreduce",
        "Allgather Reduce_scatter Isend Irecv Wait Sendrecv Error_string Error_class Wtime Wtick"}
kept = {"MPIABI_" + name for line in kept for name in line.split()}
others = [name for name in functions if name.startswith("MPIABI_") and name not in kept]
assert len(others) > 300
for name in others:
    assert name.replace("MPIABI", "MPI") in why(getattr(mpi, name)()), name
assert all(getattr(mpi, name)() == 0 for name in functions if name.startswith("MPIXABI_"))
assert mpi.MPIABI_Finalize() == 0 and mpi.MPIABI_Finalize() == 0
mpi.MPIABI_Finalized(ctypes.byref(number)); assert number.value == 1
assert "finalized" in why(mpi.MPIABI_Allreduce(own, total, 4, float_, sum_, world))
assert mpi.MPIABI_Comm_free(ctypes.byref(split)) == 0 and split.value == 0
assert mpi.MPIABI_Init(None, None) == 0  # a second life
assert mpi.MPIABI_Allreduce(own, total, 4, float_, sum_, world) == 0
import os
child = os.fork()
if child == 0:
    os._exit("forked" not in why(mpi.MPIABI_Allreduce(own, total, 4, float_, sum_, world))
             or mpi.MPIABI_Finalize() != 0)
assert os.waitpid(child, 0)[1] == 0
assert mpi.MPIABI_Finalize() == 0
print("done")
"""


def test_the_library_refuses_by_name():
    library = JAX["MPITRAMPOLINE_LIB"]
    status, text = run([sys.executable, "-c", ALONE, library], 60, environment())
    assert status == 0 and text.endswith("done\n"), text
    assert "MPI_Win_create was called, which libhalay_mpi does not offer" in text
