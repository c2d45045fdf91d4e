# SPDX-License-Identifier: Apache-2.0
"""A rank that trains a small model on one device, and compares it with one process that trains on
all ranks' data. train.py ddp|optimizer DEVICE"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

STEPS, BATCH = 50, 16


def model(device: torch.device) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    return layers.to(device)


def data(rank: int, step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH, 20, generator=generator)
    return x.to(device), x.sum(dim=1, keepdim=True).sin().to(device)


def train(
    net: torch.nn.Module, optimizer: torch.optim.Optimizer, ranks: list[int], device: torch.device
) -> float:
    loss = torch.zeros(())
    for step in range(STEPS):
        parts = [data(rank, step, device) for rank in ranks]
        x, y = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
    return loss.item()


def flat(net: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().cpu().double() for p in net.parameters()])


def by_ddp(device: torch.device) -> tuple[int, int, torch.Tensor]:
    import halay.distributed  # noqa: F401

    dist.init_process_group("halay")
    net = torch.nn.parallel.DistributedDataParallel(model(device))
    train(net, torch.optim.SGD(net.parameters(), lr=0.05), [dist.get_rank()], device)
    found = dist.get_rank(), dist.get_world_size(), flat(net)
    dist.destroy_process_group()
    return found


def check_arrays(device: torch.device) -> None:
    """The device's tensors as arrays of another library's, by DLPack: made just before."""
    import halay.arrays as ha

    for step in range(STEPS):
        x = torch.full((100003,), float(step), device=device).add_(ha.rank())
        ha.allreduce(x)
        want = float(step * ha.size() + sum(range(ha.size())))
        if not bool((x == want).all()):
            sys.exit(f"train: halay.arrays, rank {ha.rank()}: {x} is not {want}")


def by_optimizer(device: torch.device) -> tuple[int, int, torch.Tensor]:
    import halay.torch as hvd

    hvd.init()
    net = model(device)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.05), named_parameters=net.named_parameters()
    )
    train(net, optimizer, [hvd.rank()], device)
    check_arrays(device)
    found = hvd.rank(), hvd.size(), flat(net)
    hvd.shutdown()
    return found


def main() -> None:
    way, device = sys.argv[1], torch.device(sys.argv[2])
    rank, size, got = (by_ddp if way == "ddp" else by_optimizer)(device)
    alone = model(device)
    before = flat(alone)
    loss = train(alone, torch.optim.SGD(alone.parameters(), lr=0.05), list(range(size)), device)
    want = flat(alone)
    apart = (got - want).abs().max().item()
    moved = (want - before).abs().max().item()
    if not apart < 1e-4 or not moved > 0.01:
        sys.exit(f"train: {way}, rank {rank}: {apart} from one process's, which moved by {moved}")
    print(f"train: {way}, rank {rank} of {size}: within {apart:.1e}; loss {loss:.4f}")


if __name__ == "__main__":
    main()
