# SPDX-License-Identifier: Apache-2.0
"""Gloo's allreduce (torch.distributed), timed as bench/mpi_allreduce.c times MPI's: LOW HIGH SECONDS. Started by mpirun."""

import os
import resource
import sys
import time

os.environ.update(RANK=os.environ["OMPI_COMM_WORLD_RANK"], WORLD_SIZE=os.environ["OMPI_COMM_WORLD_SIZE"],
                  MASTER_PORT="29517", GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "eth0"))
os.environ.setdefault("MASTER_ADDR", "v1")

import torch  # noqa: E402  (what it reads of the environment is set above)
import torch.distributed as dist  # noqa: E402


def agreed(value, op):
    one = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(one, op=op)
    return one.item()


def timed(data, calls):
    times = []
    dist.barrier()
    before = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
        now = time.perf_counter()
        times.append((now - before) * 1e6)
        before = now
    return times


def main():
    low, high, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if rank == 0:
        print("bytes,count,calls,avg_us,median_us,min_us,switches,valid")
    nbytes = low
    while nbytes <= high:
        count = nbytes // 4
        data = torch.ones(count)
        dist.all_reduce(data)
        valid = agreed(float(bool((data == ranks).all())), dist.ReduceOp.MIN)
        data.zero_()
        each = agreed(sum(timed(data, 3)) / 3, dist.ReduceOp.MAX)
        calls = max(3, min(10000, int(seconds * 1e6 / each)))
        before = resource.getrusage(resource.RUSAGE_SELF)
        times = sorted(timed(data, calls))
        after = resource.getrusage(resource.RUSAGE_SELF)
        switches = (after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw) / calls
        row = [agreed(v, dist.ReduceOp.MAX) for v in (sum(times) / calls, times[calls // 2], times[0], switches)]
        if rank == 0:
            print(f"{nbytes},{count},{calls},{row[0]:.3f},{row[1]:.3f},{row[2]:.3f},{row[3]:.4f},{int(valid)}", flush=True)
        nbytes *= 2
    dist.destroy_process_group()


main()
