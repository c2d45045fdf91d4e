# SPDX-License-Identifier: Apache-2.0
"""DDP and FSDP over the back end "halay": the parameters' bits after training."""

import hashlib

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from distributed_job import well
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def model(seed=3, width=64):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(20, width), torch.nn.ReLU(), torch.nn.Linear(width, width),
        torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 3),
    )  # fmt: skip


def digest(module):
    sha = hashlib.sha256()
    for tensor in module.state_dict().values():
        sha.update(tensor.reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return sha.hexdigest()


def batch(step, rank, rows=8):
    torch.manual_seed(1000 * step + rank)
    return torch.randn(rows, 20), torch.randint(0, 3, (rows,))


def train(module, steps=STEPS):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x, y = batch(step, dist.get_rank())
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()


def values(module):
    return torch.cat([p.detach().double().reshape(-1) for p in module.parameters()]).tolist()


def rank_ddp():
    """With small buckets, so that several are under way at once; and with unused parameters."""
    torch.set_num_threads(1)
    module = model(seed=dist.get_rank())  # rank 0's parameters are broadcast
    train(DistributedDataParallel(module, bucket_cap_mb=0.002))
    found = digest(module), values(module)
    half = torch.nn.ModuleList([torch.nn.Linear(20, 3), torch.nn.Linear(20, 3)])
    wrapped = DistributedDataParallel(Either(half), find_unused_parameters=True)
    train(wrapped)
    with wrapped.no_sync():
        wrapped(batch(9, 0)[0]).sum().backward()
    return [*found, digest(half)]


class Either(torch.nn.Module):
    """Uses one of two layers."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return self.layers[int(x[0, 0] > 0)](x)


def compare(ours, theirs):
    """Two operands have one sum: the same bits. Three may be added in another order: a bound."""
    if dist.get_world_size() == 2:
        assert ours == theirs
    # STEPS steps; the sum of n float32 differs by at most n - 1 roundings of 2^-24.
    assert max(abs(a - b) for a, b in zip(ours[1], theirs[1])) < 1e-4


def whole_numbers(rows, rank):
    """Whole numbers, so that every sum of a step is exact in float64, in any order."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randint(-3, 4, (rows, 6), generator=generator).double()
    return x, torch.randint(-5, 6, (rows, 2), generator=generator).double()


def rank_exact():
    """Bits of single-process training on the joined batch; the loss is scaled by the number of
    ranks, for DDP divides the gradients by it."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def fresh():
        layer = torch.nn.Linear(6, 2, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.arange(12).view(2, 6) - 6)
            layer.bias.fill_(1)
        return layer

    def steps(module, x, y, scale):
        optimizer = torch.optim.SGD(module.parameters(), lr=2.0**-10)
        for _ in range(2):
            optimizer.zero_grad()
            ((module(x) - y) ** 2).sum().mul(scale).backward()
            optimizer.step()

    ours, alone = fresh(), fresh()
    steps(DistributedDataParallel(ours, bucket_cap_mb=1e-5), *whole_numbers(8, rank), size)
    parts = [whole_numbers(8, r) for r in range(size)]
    steps(alone, *(torch.cat(p) for p in zip(*parts)), 1)
    assert torch.equal(ours.weight, alone.weight) and torch.equal(ours.bias, alone.bias)


def rank_fsdp():
    torch.set_num_threads(1)
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    def gradients_as_ddp(module):
        """After train() the full parameters are those of DDP, but for the order of sums."""
        reference = DistributedDataParallel(without_norm())
        train(reference)
        wanted = torch.cat([p.detach().reshape(-1) for p in reference.parameters()])
        assert torch.allclose(module, wanted, rtol=1e-5, atol=1e-6), (module - wanted).abs().max()

    def without_norm():
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 3))

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    module = without_norm()
    for layer in (module[0], module[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    train(module)
    gradients_as_ddp(torch.cat([p.full_tensor().detach().reshape(-1) for p in module.parameters()]))
    module = FullyShardedDataParallel(without_norm(), device_id=torch.device("cpu"))
    train(module)
    with FullyShardedDataParallel.summon_full_params(module):
        gradients_as_ddp(torch.cat([p.detach().reshape(-1) for p in module.parameters()]))


def rank_zero():
    """ZeroRedundancyOptimizer and a communication hook of Python."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module = model()
    wrapped = DistributedDataParallel(module)
    wrapped.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), optimizer_class=torch.optim.Adam, lr=0.01
    )
    for step in range(3):
        optimizer.zero_grad()
        x, y = batch(step, dist.get_rank())
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
    mine = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first)


def rank_power_sgd():
    """A hook whose callbacks wait for calls that they make."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    module = model()
    wrapped = DistributedDataParallel(module)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(wrapped, 6)
    mine = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first)


def rank_compiled():
    """torch.compile of a DDP model: the bits of the model that is not compiled."""
    plain, compiled = model(), model()
    train(DistributedDataParallel(plain))
    train(torch.compile(DistributedDataParallel(compiled), backend="eager"))
    assert digest(plain) == digest(compiled)


def rank_training():
    ours = rank_ddp()
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, [ours[1], ours[2]])
    assert all(values == everyone[0] for values in everyone)
    rank_exact()
    rank_fsdp()
    rank_zero()
    rank_power_sgd()
    rank_compiled()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method="halay://")
    compare(ours, rank_ddp())
    return ours[1][0]


@pytest.mark.sampled
@pytest.mark.parametrize("nranks, launcher", [(2, "torchrun"), (3, "halayrun")])
def test_training(tmp_path, nranks, launcher):
    results = well(tmp_path, nranks, rank_training, launcher=launcher)
    assert len(set(results)) == 1
