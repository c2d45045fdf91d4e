# SPDX-License-Identifier: Apache-2.0
"""Gloo's collectives (torch.distributed), timed as halay-bench times Halay's, with the same options: the largest of the
ranks' averages, medians and minima. Allreduce is in place, which is all that there is. Started by mpirun or halayrun."""

import argparse
import os
import resource
import time

NAMES = {"RANK": ("OMPI_COMM_WORLD_RANK", "PMIX_RANK"), "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")}
os.environ.update({name: next(os.environ[n] for n in names if n in os.environ) for name, names in NAMES.items()})
os.environ.setdefault("MASTER_PORT", "29517")
os.environ.setdefault("MASTER_ADDR", "v1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import torch  # noqa: E402  (what it reads of the environment is set above)
import torch.distributed as dist  # noqa: E402

HEAD = "bytes,count,calls,avg_us,median_us,min_us,switches,valid"


def agreed(value, op):
    one = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(one, op=op)
    return one.item()


def calls_of(collective, count):
    """(the call, what it reads, what it writes, what then stands there); count elements a rank or block. Ranks put their
    numbers in."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    everyone = torch.arange(float(ranks)).repeat_interleave(count)
    one, all_, total = torch.full((count,), float(rank)), torch.full((count * ranks,), float(rank)), sum(range(ranks))
    return {"allreduce": (lambda a, _: dist.all_reduce(a), one, one, torch.full((count,), float(total))),
            "broadcast": (lambda a, _: dist.broadcast(a, 0), one, one, torch.zeros(count)),
            "allgather": (lambda a, b: dist.all_gather_into_tensor(b, a), one, everyone.clone(), everyone),
            "reduce_scatter": (lambda a, b: dist.reduce_scatter_tensor(b, a), all_, one, torch.full((count,), float(total))),
            "alltoall": (lambda a, b: dist.all_to_all_single(b, a), all_, everyone.clone(), everyone),
            "barrier": (lambda *_: dist.barrier(), one, one, one)}[collective]


def timed(call, calls, barrier):
    times = []
    dist.barrier()
    before = time.perf_counter()
    for _ in range(calls):
        if barrier:
            dist.barrier()
            before = time.perf_counter()
        call()
        now = time.perf_counter()
        times.append((now - before) * 1e6)
        before = now
    return times


def measure(args, nbytes):
    blocks = dist.get_world_size() if args.collective in ("reduce_scatter", "alltoall") else 1
    count = nbytes // 4 // blocks
    if not count and nbytes:
        return None
    run, source, target, expected = calls_of(args.collective, max(count, 1))
    if target is not source:
        target.fill_(-1)
    run(source, target)
    valid = agreed(float(torch.equal(target, expected)), dist.ReduceOp.MIN)
    source.zero_()
    each = agreed(sum(timed(lambda: run(source, target), 3, args.barrier)) / 3, dist.ReduceOp.MAX)
    calls = max(3, min(1000000, int(args.seconds * 1e6 / each)))
    before = resource.getrusage(resource.RUSAGE_SELF)
    times = sorted(timed(lambda: run(source, target), calls, args.barrier))
    after = resource.getrusage(resource.RUSAGE_SELF)
    switches = (after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw) / calls
    values = [agreed(v, dist.ReduceOp.MAX) for v in (sum(times) / calls, times[calls // 2], times[0], switches)]
    return values[0], "{},{},{},{:.3f},{:.3f},{:.3f},{:.4f},{}".format(nbytes, count, calls, *values, int(valid))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collective")
    for name, kind in {"min": int, "max": int, "factor": int, "seconds": float}.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    parser.add_argument("--stop-at", type=float, default=float("inf"))
    parser.add_argument("--csv", required=True)
    parser.add_argument("--barrier", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows, nbytes, us = [HEAD], args.min, 0.0
    if args.collective == "barrier":
        nbytes = args.max = 0
    while nbytes <= args.max and us <= args.stop_at * 1e6:
        got = measure(args, nbytes)
        if got:
            us, row = got
            rows.append(row)
        nbytes = nbytes * args.factor or 1
    if dist.get_rank() == 0:
        with open(args.csv, "w") as file:
            file.write("\n".join(rows) + "\n")
    dist.destroy_process_group()


main()
