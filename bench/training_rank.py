# SPDX-License-Identifier: Apache-2.0
"""One rank of training_peers: training_rank.py horovod|gloo FOLDER SECONDS. "horovod" is whose package of that name
Python finds, Horovod's or Halay's: the same program runs on both. Rank 0 writes FOLDER/rows, csv."""

import csv
import os
import sys
import time

import torch


class Horovod:
    """Allreduces and a trainer's step by a package named horovod."""

    def __init__(self, _folder):
        import horovod.torch as hvd

        hvd.init()
        self.hvd, self.rank, self.size = hvd, hvd.rank(), hvd.size()
        self.close = hvd.shutdown

    def start(self, tensor, name):
        handle = self.hvd.allreduce_async_(tensor, op=self.hvd.Max, name=name)
        return lambda: self.hvd.synchronize(handle)

    def reduce(self, tensor, name):
        self.hvd.allreduce_(tensor, op=self.hvd.Max, name=name)

    def trainer(self, model):
        plain = torch.optim.SGD(model.parameters(), lr=1e-4)
        return model, self.hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())

    def control_bytes(self):
        """What this rank has said in Halay's rounds; no number under Horovod, which counts nothing."""
        if "halay.torch" not in sys.modules:
            return float("nan")
        from halay._core import ffi, lib
        from halay._session import session

        counters = ffi.new("halay_trainer_counters_t *", {"size": ffi.sizeof("halay_trainer_counters_t")})
        assert lib.halay_trainer_counters(session().members[0].trainer, counters) == 0
        return counters.control_bytes


class Gloo:
    """torch.distributed over Gloo, alone in its processes."""

    def __init__(self, folder):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        import torch.distributed as dist

        self.dist, self.rank, self.size = dist, int(os.environ["PMIX_RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", f"file://{folder}/gloo", rank=self.rank, world_size=self.size)
        self.close = dist.destroy_process_group

    def start(self, tensor, _name):
        return self.dist.all_reduce(tensor, self.dist.ReduceOp.MAX, async_op=True).wait

    def reduce(self, tensor, _name):
        self.dist.all_reduce(tensor, self.dist.ReduceOp.MAX)

    def trainer(self, model):
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        return ddp, torch.optim.SGD(ddp.parameters(), lr=1e-4)

    def control_bytes(self):
        return float("nan")


def mlp():
    """67 MB of gradients."""
    return torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]), torch.randn(16, 2048)


def cnn():
    """1.2 MB of gradients."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 5 * 5, 178), torch.nn.ReLU(), torch.nn.Linear(178, 10),
    ), torch.randn(32, 1, 14, 14)  # fmt: skip


def maxima(library, count, elements):
    """(a step, whether the tensors are right) of count tensors, all submitted, then all waited for, or of one by
    the call that does both; maxima, so that the values stay as they are from the first step on."""
    tensors = [torch.full((elements,), float(library.rank)) for _ in range(count)]

    def step():
        if count == 1:
            library.reduce(tensors[0], "one")
            return
        for wait in [library.start(t, f"t{count}.{i}") for i, t in enumerate(tensors)]:
            wait()

    return step, lambda: all(bool((t == library.size - 1).all()) for t in tensors)


def training(library, make):
    """(a step, whether all ranks' parameters are the same)"""
    torch.manual_seed(1)
    model, data = make()
    data += library.rank
    model, optimizer = library.trainer(model)

    def step():
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    def valid():
        total = sum(p.detach().double().sum() for p in model.parameters())
        both = torch.stack([total, -total])
        library.start(both, "valid")()
        return bool(both[0] == -both[1]) and bool(both.isfinite().all())

    return step, valid


CASES = {
    "small": lambda library: maxima(library, 1, 10),
    "many": lambda library: maxima(library, 200, 16384),
    "mlp": lambda library: training(library, mlp),
    "cnn": lambda library: training(library, cnn),
}


def timed(library, step, n):
    """(seconds a step, the slowest rank's, control bytes a step). What follows the first allreduce settles first."""
    library.start(torch.zeros(1), "begin")()
    for _ in range(2):
        step()
    said, begin = library.control_bytes(), time.perf_counter()
    for _ in range(n):
        step()
    one = torch.tensor([(time.perf_counter() - begin) / n, (library.control_bytes() - said) / n])
    library.start(one, "end")()
    return one.tolist()


def main(kind, folder, seconds):
    torch.set_num_threads(1)
    library = {"horovod": Horovod, "gloo": Gloo}[kind](folder)
    rows = []
    for case, make in CASES.items():
        step, valid = make(library)
        first, _ = timed(library, step, 5)
        n = max(3, int(float(seconds) / first))
        one, said = timed(library, step, n)
        rows.append([case, f"{1e6 * one:.1f}", said, int(valid())])
    library.close()
    if library.rank == 0:
        with open(os.path.join(folder, "rows"), "w", newline="") as file:
            csv.writer(file).writerows([["case", "us", "control_bytes", "valid"], *rows])
    if kind == "gloo":
        # torch 1.13 now and then never ends: DDP's destructor, which has the GIL, waits for Gloo's thread, which wants it.
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
