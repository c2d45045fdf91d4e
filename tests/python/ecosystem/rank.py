# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that runs programs over a back end: rank.py BACKEND FOLDER MODULE PROGRAM...

A program is a function of a module beside this file. It trains a small model on made data with the
back end whose name it is given, and returns numbers. Each rank writes {program: numbers} to
FOLDER/RANK.json: what one back end returned can then be compared with what another did.
"""

import importlib
import json
import os
import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import halay.distributed  # noqa: F401

ROWS, WIDTH, KINDS = 8, 12, 3


def start(backend):
    """With nothing but the back end's name, whatever has started the ranks. One group serves all
    programs of a job: made again over torchrun's store, Gloo's waits for ever."""
    if not dist.is_initialized():
        dist.init_process_group(backend)


def mlp(seed=3, width=32):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, width), torch.nn.ReLU(),
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, KINDS),
    )  # fmt: skip


def batch(step, rank, rows=ROWS):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(rows, WIDTH, generator=generator)
    return x, torch.randint(0, KINDS, (rows,), generator=generator)


def loss_of(module, step, rank=None, rows=ROWS):
    x, y = batch(step, dist.get_rank() if rank is None else rank, rows)
    return torch.nn.functional.cross_entropy(module(x), y)


def dataset(rows=64):
    return torch.utils.data.TensorDataset(*batch(7, 0, rows))


def numbers(tensors):
    """Sums that tell parameters apart, in double precision."""
    return [t.detach().double().abs().sum().item() for t in tensors]


def main() -> None:
    backend, folder, module, *programs = sys.argv[1:]
    torch.set_num_threads(1)
    found = importlib.import_module(module)
    results = {}
    for name in programs:
        torch.manual_seed(0)
        random.seed(0)
        results[name] = getattr(found, name)(backend)
        assert dist.get_backend() == backend
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.destroy_process_group()
    if backend == "gloo":
        # Gloo's threads outlive its group. One that drops a tensor while the interpreter ends
        # aborts the process (github.com/pytorch/pytorch/issues/190489). Halay's ranks end in full.
        os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
