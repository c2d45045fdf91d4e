# SPDX-License-Identifier: Apache-2.0
"""A rank that runs tests/python's own functions with tensors that are made on a device.

surface.py distributed|training DEVICE
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

DISTRIBUTED = {
    "test_distributed": "reductions moves uneven pairs asynchronous coalesced groups",
    "test_distributed_training": "ddp exact zero",
}
TRAINING = {
    "test_collectives": "allreduce average bool scales float_sums compression reductions orders "
    "kinds_share_names poll barrier handles allgather broadcast",
    "test_sync_batch_norm": "batch_norm",
    "test_functions": "parameters optimizer_state objects",
    "test_optimizer": "equals_serial equals_joined_batch predivide compression "
    "missing_gradients strided_gradient closure overlap",
}


def fsdp(device: torch.device) -> None:
    """Sharded training gives the parameters of training on the joined batch."""
    from torch.distributed.fsdp import fully_shard

    def model() -> torch.nn.Module:
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.Tanh(), torch.nn.Linear(33, 3))

    def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer, rows: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.autograd.backward(net(rows).square().mean())
        optimizer.step()

    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = dist.init_device_mesh(device.type, (size,))
    ours, alone = model(), model()
    for layer in (ours[0], ours[2], ours):
        fully_shard(layer, mesh=mesh)
    joined = torch.randn(20, 8 * size, 20)
    mine, all_of_it = (torch.optim.Adam(net.parameters(), lr=0.01) for net in (ours, alone))
    for rows in joined:
        step(ours, mine, rows.chunk(size)[rank])
        step(alone, all_of_it, rows)
    for found, wanted in zip(ours.parameters(), alone.parameters()):
        torch.testing.assert_close(found.full_tensor(), wanted, rtol=1e-4, atol=1e-5)


def main() -> None:
    way, device = sys.argv[1], torch.device(sys.argv[2])
    torch.cuda.set_device(device)
    torch.set_default_device(device)

    class Generator(torch.Generator):
        def __new__(cls, where: torch.device = device) -> Generator:
            return super().__new__(cls, where)

    torch.Generator = Generator  # type: ignore[misc, assignment]
    if way == "distributed":
        import halay.distributed  # noqa: F401

        dist.init_process_group("halay")
        rank = dist.get_rank()
        bodies = dict(DISTRIBUTED)
        if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 13):
            bodies["test_distributed"] = bodies["test_distributed"].replace(" groups", "")
    else:
        import halay.torch as hvd

        hvd.init()
        rank = hvd.rank()
        bodies = TRAINING
    failed, ran = [], 0
    for module, names in bodies.items():
        for name in names.split():
            torch.manual_seed(7)
            try:
                getattr(importlib.import_module(module), f"rank_{name}")()
                ran += 1
            except Exception:
                failed.append(name)
                print(f"surface: rank {rank}: {name}\n{traceback.format_exc()}", flush=True)
    if way == "distributed":
        torch.manual_seed(7)
        fsdp(device)
        dist.destroy_process_group()
    if failed:
        sys.exit(f"surface: {way}, rank {rank}: failed: {' '.join(failed)}")
    print(f"surface: {way}, rank {rank}: {ran} functions of tests/python are right")


if __name__ == "__main__":
    main()
