# SPDX-License-Identifier: Apache-2.0
"""Halay in a program of mpi4py: its ranks are those of MPI, whatever has started them.

mpirun -np 4 python examples/mpi4py_sum.py
"""

import torch
from mpi4py import MPI

import halay.torch as hvd

comm = MPI.COMM_WORLD
hvd.init(allgather=comm.allgather, rank=comm.rank, size=comm.size)
total = hvd.allreduce(torch.arange(4.0) + comm.rank, op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}: {total.tolist()}", flush=True)
hvd.shutdown()
