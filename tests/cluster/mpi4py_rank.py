# SPDX-License-Identifier: Apache-2.0
"""A rank that uses MPI (by mpi4py) and Halay in one process: mpi4py_rank.py ORDER

The order says whose life lies where: around (MPI's around Halay's), before (Halay's ends before
MPI's begins), after, outer (Halay's around MPI's), crossed (Halay's begins before and ends within
MPI's). Every sum is compared exactly, on every rank.
"""

from __future__ import annotations

import ctypes
import os
import sys
from array import array

import mpi4py

mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402

COUNTS = 1, 1000, 100003  # each of the ways that a message may take
INT64, SUM = 6, 0
lib = ctypes.CDLL(os.environ["HALAY_LIBRARY"])
context, world = ctypes.c_void_p(), ctypes.c_void_p()
who: tuple[int, int] | None = None  # rank and size, on which all must agree


def call(name: str, *arguments: object) -> None:
    code = getattr(lib, name)(*arguments)
    assert code == 0, f"{name} returned {code}"


def at(data: array) -> ctypes.c_void_p:
    return ctypes.c_void_p(data.buffer_info()[0])


def values(rank: int, count: int, salt: int) -> array:
    return array("q", (i * (rank + 1) + salt for i in range(count)))


def check(by: str, found: array, size: int, salt: int) -> None:
    wanted = array("q", (i * (size * (size + 1) // 2) + size * salt for i in range(len(found))))
    assert found == wanted, f"{by}: wrong sum of {len(found)} numbers on rank {who}"


def same(rank: int, size: int) -> None:
    global who
    who = who or (rank, size)
    assert who == (rank, size), f"it was {who}, and is {rank, size} now"


def mpi_begin() -> None:
    MPI.Init()
    same(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)


def halay_begin() -> None:
    rank, size = ctypes.c_int(), ctypes.c_int()
    call("halay_init", None, ctypes.byref(context))
    call("halay_comm_world", context, ctypes.byref(world))
    call("halay_comm_rank", world, ctypes.byref(rank))
    call("halay_comm_size", world, ctypes.byref(size))
    same(rank.value, size.value)


def halay_end() -> None:
    call("halay_finalize", context)


def mpi_sums(salt: int) -> None:
    for count in COUNTS:
        out = array("q", bytes(8 * count))
        MPI.COMM_WORLD.Allreduce(values(who[0], count, salt), out)
        check("MPI", out, who[1], salt)


def halay_sums(salt: int) -> None:
    for count in COUNTS:
        given, out = values(who[0], count, salt), array("q", bytes(8 * count))
        call("halay_allreduce", at(given), at(out), ctypes.c_size_t(count), INT64, SUM, world)
        check("Halay", out, who[1], salt)


def both_sums(salt: int) -> None:
    """In turns, and each while the other's is under way."""
    for turn in range(salt, salt + 3):
        mpi_sums(turn)
        halay_sums(turn)
    for count in COUNTS:
        mine, ours = values(who[0], count, salt), values(who[0], count, salt + 1)
        out, summed = array("q", bytes(8 * count)), array("q", bytes(8 * count))
        request = ctypes.c_void_p()
        other = MPI.COMM_WORLD.Iallreduce(mine, out)
        call(
            "halay_iallreduce",
            *(at(ours), at(summed), ctypes.c_size_t(count), INT64, SUM, world),
            ctypes.byref(request),
        )
        if turn % 2:
            other.Wait()
        call("halay_request_wait", request)
        other.Wait()
        check("MPI", out, who[1], salt)
        check("Halay", summed, who[1], salt + 1)


def around() -> None:
    mpi_begin()
    mpi_sums(1)
    for life in range(2):
        halay_begin()
        both_sums(10 * life)
        halay_end()
        mpi_sums(life)
    MPI.Finalize()


def before() -> None:
    for life in range(2):
        halay_begin()
        halay_sums(life)
        halay_end()
    mpi_begin()
    mpi_sums(2)
    MPI.Finalize()


def after() -> None:
    mpi_begin()
    mpi_sums(1)
    MPI.Finalize()
    for life in range(2):
        halay_begin()
        halay_sums(life)
        halay_end()


def outer() -> None:
    halay_begin()
    halay_sums(1)
    mpi_begin()
    both_sums(2)
    MPI.Finalize()
    halay_sums(3)
    halay_end()


def crossed() -> None:
    halay_begin()
    halay_sums(1)
    mpi_begin()
    both_sums(2)
    halay_end()
    mpi_sums(3)
    MPI.Finalize()


ORDERS = {f.__name__: f for f in (around, before, after, outer, crossed)}
ORDERS[sys.argv[1]]()
print(f"rank {who[0]} of {who[1]}: {sys.argv[1]} was right", flush=True)
