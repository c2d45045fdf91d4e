# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed itself offers, through the process group that a program has made."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from rank import batch, loss_of, mlp, numbers, start
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


def steps(module, optimizer, n=3, first=0, rank=None):
    losses = []
    for step in range(first, first + n):
        optimizer.zero_grad()
        loss = loss_of(module, step, rank)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def ddp(backend):
    """The settings of DDP that change how it calls a back end."""
    start(backend)
    found = []
    for options in (
        {"bucket_cap_mb": 0.002},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True},
        {"gradient_as_bucket_view": True, "static_graph": True, "bucket_cap_mb": 0.002},
        {"broadcast_buffers": False},
        {"init_sync": False},
        {"device_ids": None, "skip_all_reduce_unused_params": True, "find_unused_parameters": True},
    ):
        module = DistributedDataParallel(mlp(), **options)
        found += steps(module, sgd(module)) + numbers(module.parameters())
    return found


def ddp_no_sync(backend):
    """Gradients are accumulated over two batches of three."""
    start(backend)
    module = DistributedDataParallel(mlp())
    optimizer, found = sgd(module), []
    for step in range(2):
        optimizer.zero_grad()
        with module.no_sync():
            for part in range(2):
                loss_of(module, 3 * step + part).backward()
        loss = loss_of(module, 3 * step + 2)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found + numbers(module.parameters())


def ddp_join(backend):
    """Ranks with different numbers of batches."""
    start(backend)
    found = []
    for divide in (True, False):
        module = DistributedDataParallel(mlp())
        optimizer = sgd(module)
        with module.join(divide_by_initial_world_size=divide):
            found += steps(module, optimizer, 2 + 2 * dist.get_rank())
        found += numbers(module.parameters())
    return found


def hooked(kind):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    module, state = DistributedDataParallel(mlp(), bucket_cap_mb=0.002), None
    if kind in dist.BuiltinCommHookType.__members__:
        module._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, kind))
        return module
    if kind == "fp16 of":
        hook = default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    elif kind.startswith("power"):
        state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
        hook = powerSGD_hook.powerSGD_hook
        if kind == "power fp16":
            hook = default_hooks.fp16_compress_wrapper(hook)
    else:
        hook = {"sum": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook}[kind]
    module.register_comm_hook(state, hook)
    return module


def same_everywhere(found):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, found)
    assert all(other == found for other in everyone), everyone
    return found


def ddp_hooks(backend):
    """torch's own communication hooks, those of C++ too, over several buckets."""
    start(backend)
    found = []
    for kind in ("sum", "fp16", "fp16 of", "ALLREDUCE", "FP16_COMPRESS"):
        module = hooked(kind)
        found += steps(module, sgd(module)) + same_everywhere(numbers(module.parameters()))
    return found


def ddp_power_sgd(backend):
    """Over several buckets: their callbacks make calls. Gloo mixes these up."""
    start(backend)
    for kind in ("power", "power fp16"):  # torch 2.13's batched hook fails by itself
        module = hooked(kind)
        steps(module, sgd(module), 5)
        same_everywhere(numbers(module.parameters()))


def post_local_sgd(backend):
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    start(backend)
    module = DistributedDataParallel(mlp())
    # A sub-group of one rank, as there is one rank a node in the page's own example.
    own, _ = dist.new_subgroups(group_size=1)
    state = post_localSGD_hook.PostLocalSGDState(None, own, start_localSGD_iter=2)
    module.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    optimizer = PostLocalSGDOptimizer(optim=sgd(module), averager=averager)
    return steps(module, optimizer, 6) + numbers(module.parameters())


def zero_redundancy(backend):
    """Each rank has the optimizer's state of some parameters, and all of it to be saved."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    start(backend)
    module = DistributedDataParallel(mlp())
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True, lr=0.01
    )
    found = steps(module, optimizer) + numbers(module.parameters())
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        found += [float(len(optimizer.state_dict()["state"]))]
    return found


def zero_overlapped(backend):
    """The optimizer's step of a bucket while others are reduced. torch refuses Gloo for it."""
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook, default_hooks
    from torch.distributed.optim import ZeroRedundancyOptimizer

    start(backend)
    for hook in (ddp_zero_hook.hook_with_zero_step, ddp_zero_hook.hook_with_zero_step_interleaved):
        module = DistributedDataParallel(mlp(), static_graph=True, bucket_cap_mb=0.002)
        optimizer = ZeroRedundancyOptimizer(
            module.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1
        )
        wrapped = hook(default_hooks.allreduce_hook, module, optimizer)
        module.register_comm_hook(None, wrapped)
        steps(module, optimizer, 5)
        same_everywhere(numbers(module.parameters()))


def fsdp2(backend):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    start(backend)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    found = []
    for policy in (
        MixedPrecisionPolicy(),
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    ):
        module = mlp()
        for layer in module:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(module, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, foreach=True)
        for step in range(4):
            optimizer.zero_grad()
            module.set_requires_gradient_sync(step % 2 == 1)
            x, y = batch(step, dist.get_rank())
            loss = torch.nn.functional.cross_entropy(module(x).float(), y)
            loss.backward()
            if step % 2 == 1:
                norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
                found.append(norm.full_tensor().item())
                optimizer.step()
            found.append(loss.item())
        found += numbers(p.full_tensor() for p in module.parameters())
    return found


def fsdp_class(backend):
    """The older class, with each sharding that two ranks can have, and saved whole."""
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy

    start(backend)
    found = []
    for kind in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        module = FullyShardedDataParallel(
            mlp(), device_id=torch.device("cpu"), sharding_strategy=ShardingStrategy[kind],
            cpu_offload=CPUOffload(offload_params=False), use_orig_params=True,
        )  # fmt: skip
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        found += steps(module, optimizer)
        found.append(module.clip_grad_norm_(1.0).item())
        with FullyShardedDataParallel.summon_full_params(module):
            found += numbers(module.parameters())
    return found


def tensor_parallel(backend):
    start(backend)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    module = parallelize_module(mlp(), mesh, plan)
    found = steps(module, torch.optim.AdamW(module.parameters(), lr=0.01, foreach=False), rank=0)
    x = distribute_tensor(torch.arange(24.0).view(6, 4), mesh, [Shard(0)])
    found += x.redistribute(placements=[Shard(1)]).to_local().flatten().tolist()
    found += [(x @ x.t()).full_tensor().sum().item(), x.sum().full_tensor().item()]
    found += (x - x.mean(0, keepdim=True)).full_tensor().flatten().tolist()
    return found


def checkpoints(backend):
    """torch.distributed.checkpoint: saved by two ranks, also in the background, and loaded."""
    start(backend)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    folder = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(folder)
    module = mlp()
    fully_shard(module, mesh=mesh)
    found = steps(module, sgd(module))
    state = module.state_dict()
    dcp.save({"model": state}, checkpoint_id=os.path.join(folder[0], "one"))
    dcp.async_save({"model": state}, checkpoint_id=os.path.join(folder[0], "two")).result()
    for name in ("one", "two"):
        other = mlp(seed=9)
        fully_shard(other, mesh=mesh)
        wanted = {"model": other.state_dict()}
        dcp.load(wanted, checkpoint_id=os.path.join(folder[0], name))
        other.load_state_dict(wanted["model"])
        found += numbers(p.full_tensor() for p in other.parameters())
    assert found[-6:] == numbers(p.full_tensor() for p in module.parameters())
    return found


def pipeline(backend):
    """Two stages, 1F1B and GPipe, four microbatches."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    start(backend)
    rank, found = dist.get_rank(), []
    for schedule in (Schedule1F1B, ScheduleGPipe):
        whole = mlp()
        part = whole[:3] if rank == 0 else whole[3:]
        stage = PipelineStage(part, rank, 2, torch.device("cpu"))
        plan = schedule(stage, 4, loss_fn=torch.nn.functional.cross_entropy)
        optimizer = sgd(part)
        for step in range(3):
            x, y = batch(step, 0)
            optimizer.zero_grad()
            losses = []
            if rank == 0:
                plan.step(x)
            else:
                plan.step(target=y, losses=losses)
            optimizer.step()
            found += [loss.item() for loss in losses]
        found += numbers(part.parameters())
    return found


def objects(backend):
    start(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "text": "x" * rank})
    assert [one["rank"] for one in everyone] == list(range(size))
    into = [None] * size if rank == 0 else None
    dist.gather_object(rank, into)
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None)
    assert mine == [f"for {rank}"]
    peer = 1 - rank
    if rank == 0:
        dist.send_object_list([1, "two"], peer)
    else:
        got = [None, None]
        dist.recv_object_list(got, peer)
        assert got == [1, "two"]
    ops = [
        dist.P2POp(dist.isend, torch.full((5,), float(rank)), peer),
        dist.P2POp(dist.irecv, into := torch.zeros(5), peer),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return into.tolist()


def functional(backend):
    """Differentiable and functional collectives, sync batch norm, model averaging."""
    import torch.distributed._functional_collectives as funcol
    import torch.distributed.nn.functional as dnn

    start(backend)
    rank = dist.get_rank()
    x = torch.full((4,), rank + 1.0, requires_grad=True)
    (dnn.all_reduce(x * 2).sum() + torch.cat(dnn.all_gather(x)).pow(2).sum()).backward()
    found = x.grad.tolist()
    y = torch.arange(4.0) + rank
    found += (funcol.all_reduce(y, "sum", dist.group.WORLD) * 1).tolist()
    found += (funcol.all_gather_tensor(y, 0, dist.group.WORLD) + 0).tolist()
    found += (funcol.reduce_scatter_tensor(y, "sum", 0, dist.group.WORLD) + 0).tolist()
    found += (funcol.all_to_all_single(y, None, None, dist.group.WORLD) + 0).tolist()
    return found
