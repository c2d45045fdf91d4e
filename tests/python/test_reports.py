# SPDX-License-Identifier: Apache-2.0
"""Public reports of bugs in other libraries, each as its smallest program over Halay.

A function names the report in its docstring. Two ranks run all of them one after the other, in one
job for torch.distributed and one for halay.torch; what fails is named with its report.
"""

import contextlib
import traceback

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as dnn
import torch.distributed.tensor as tensor
from distributed_job import well
from torch.nn.parallel import DistributedDataParallel

import halay


def column(value):
    """Two elements of four: not contiguous."""
    return torch.full((2, 2), float(value))[:, 0]


def d_strided():
    """pytorch/pytorch#192920, #24836: broadcast, reduce and scatter of strided tensors."""
    rank = dist.get_rank()
    x = column(rank + 1)
    dist.broadcast(x, 0)
    assert x.tolist() == [1, 1]
    y = column(rank + 1)
    dist.reduce(y, 0)
    assert rank or y.tolist() == [3, 3]
    out = torch.zeros(3)
    parts = [torch.linspace(0, 5, 6)[::2]] * 2 if rank == 0 else None
    dist.scatter(out, parts, 0)
    assert out.tolist() == [0, 2, 4]


def d_gathered_permuted():
    """pytorch/pytorch#158902, #159548, #74809: gather of a transposed NumPy array."""
    mine = torch.from_numpy(np.arange(10.0).reshape(2, 5).T) + dist.get_rank()
    into = [torch.zeros(5, 2, dtype=torch.double) for _ in range(2)] if dist.get_rank() else None
    dist.gather(mine, into, dst=1)
    for rank, one in enumerate(into or []):
        assert torch.equal(one, torch.from_numpy(np.arange(10.0).reshape(2, 5).T) + rank)


def d_chunks():
    """pytorch/pytorch#20421: all_gather of chunks of one tensor."""
    whole = torch.arange(64.0).view(4, 4, 4)
    into = [torch.zeros(2, 4, 4) for _ in range(2)]
    dist.all_gather(into, whole.chunk(2, 0)[dist.get_rank()])
    assert torch.equal(torch.cat(into), whole)


def d_expanded_gradient():
    """pytorch/pytorch#73515: the gradient of sum() is an expanded tensor."""
    x = torch.ones(3, requires_grad=True)
    torch.stack(dnn.all_gather(x)).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def d_uneven():
    """pytorch/pytorch#156627: all_gather of tensors of unequal sizes."""
    into = [torch.zeros(n + 1) for n in range(2)]
    dist.all_gather(into, torch.full((dist.get_rank() + 1,), dist.get_rank() + 1.0))
    assert torch.cat(into).tolist() == [1, 2, 2]


def d_exchanged():
    """pytorch/pytorch#88245, #101380: all_to_all of lists; rows that ranks cannot share."""
    into = [torch.zeros(2), torch.zeros(2)]
    dist.all_to_all(into, [torch.full((2,), 10.0 * dist.get_rank() + to) for to in range(2)])
    assert [t[0].item() for t in into] == [dist.get_rank(), 10 + dist.get_rank()]
    with pytest.raises(ValueError, match="3 rows"):
        dist.all_to_all_single(torch.zeros(3), torch.zeros(3))


def d_objects_of_a_group():
    """pytorch/pytorch#74602, #130515, #134006: groups whose ranks are not those of the job."""
    last = dist.new_group([1])
    own, _ = dist.new_subgroups_by_enumeration([[0], [1]])
    turned = dist.new_group([1, 0])
    if dist.get_rank() == 1:
        got = [None]
        dist.scatter_object_list(got, ["mine"], src=1, group=last)
        assert got == ["mine"]
        x = [{"a": 1}]
        dist.broadcast_object_list(x, src=1, group=last)
    dist.barrier(group=own)
    out = torch.zeros(2)
    dist.all_gather_into_tensor(out, torch.full((2,), 1.0 + dist.get_rank()), group=own)
    assert out.tolist() == [1.0 + dist.get_rank()] * 2
    both = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(both, torch.tensor([dist.get_rank() + 1.0]), group=turned)
    theirs = dist.get_process_group_ranks(turned)
    assert [int(t) - 1 for t in both] == theirs


def d_tags():
    """pytorch/pytorch#94819, #125079, pytorch/gloo#308: tags in another order than the sends."""
    if dist.get_rank() == 0:
        works = [dist.isend(torch.full((3,), float(tag)), 1, tag=tag) for tag in range(4)]
    else:
        into = [torch.zeros(3) for _ in range(4)]
        works = [dist.irecv(into[tag], 0, tag=tag) for tag in (2, 0, 3, 1)]
    for work in works:
        work.wait()
    assert dist.get_rank() == 0 or [int(t[0]) for t in into] == [0, 1, 2, 3]


def d_interleaved():
    """pytorch/pytorch#109401, #108378, NVIDIA/nccl#2130: sends that no rank waits for yet."""
    one, two, ours = torch.zeros(1), torch.zeros(1), []
    if dist.get_rank() == 0:
        ours += [dist.irecv(one, 1), dist.isend(torch.ones(1), 1), dist.irecv(two, 1)]
    else:
        dist.recv(torch.zeros(1), 0)
        ours += [dist.isend(torch.tensor([2.0]), 0), dist.isend(torch.tensor([3.0]), 0)]
    for work in ours:
        work.wait()
    assert dist.get_rank() or (one.item(), two.item()) == (2, 3)
    peer, got = 1 - dist.get_rank(), torch.zeros(1)
    ops = [dist.P2POp(dist.isend, torch.ones(1), peer), dist.P2POp(dist.irecv, got, peer)]
    works = dist.batch_isend_irecv(ops if dist.get_rank() else ops[1:])
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), peer)
    for work in works:
        work.wait()
    assert got.item() == 1


def d_sparse():
    """pytorch/pytorch#111422: DDP of an embedding with sparse gradients."""
    torch.manual_seed(1)
    module = DistributedDataParallel(torch.nn.Embedding(6, 2, sparse=True))
    module(torch.tensor([dist.get_rank(), 4])).sum().backward()
    assert module.module.weight.grad.to_dense()[:, 0].tolist() == [0.5, 0.5, 0, 0, 1, 0]


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.a(x), self.b(x)


def d_unused():
    """pytorch/pytorch#79171, huggingface/accelerate#2017: outputs without a loss, recomputation."""
    module = DistributedDataParallel(Twice(), find_unused_parameters=True)
    for _ in range(2):
        module(torch.ones(1, 2))[0].sum().backward()
    module = DistributedDataParallel(Twice(), static_graph=True)
    for _ in range(3):
        first = torch.utils.checkpoint.checkpoint(module, torch.ones(1, 2), use_reentrant=False)
        (first[0] + first[1]).sum().backward()
    assert module.module.a.bias.grad.tolist() == [3, 3]


class Calls(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, _):
        dist.all_reduce(torch.ones(1))


def d_worker():
    """meta-pytorch/data#868: a call in a worker of a DataLoader is refused there, and ends."""
    with pytest.raises(Exception, match="fork"):
        next(iter(torch.utils.data.DataLoader(Calls(), num_workers=1, timeout=60)))
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2


def d_kept_send():
    """pytorch/pytorch#75512: a send that its rank never waits for, before the group's end."""
    if dist.get_rank() == 0:
        dist.isend(torch.full((4, 4), 7.0), 1)
    else:
        got = torch.zeros(4, 4)
        dist.recv(got, 0)
        assert got.eq(7).all()
    dist.barrier()


def d_empty():
    """pytorch/pytorch#85234, #146468: tensors without elements; a rank that sends nothing."""
    for shape in ((1, 0, 2), (0,)):
        x = torch.ones(shape)
        dist.all_gather([torch.zeros_like(x), torch.zeros_like(x)], x)
        dist.all_reduce(x)
        dist.broadcast(x, 1)
    mine = torch.arange(4.0) if dist.get_rank() == 0 else torch.zeros(0)
    out = torch.zeros(2)
    dist.all_to_all_single(out, mine, [2, 0], [2, 2] if len(mine) else [0, 0])
    assert out.tolist() == ([0, 1] if len(mine) else [2, 3])


def d_inference():
    """pytorch/pytorch#86830: calls in inference_mode()."""
    with torch.inference_mode():
        x, both = torch.tensor([1.0 + dist.get_rank()]), [torch.zeros(1), torch.zeros(1)]
        dist.all_gather(both, x)
        dist.all_reduce(x)
    assert torch.cat(both).tolist() == [1, 2] and x.item() == 3


def d_ranks_of_a_group():
    """pytorch/pytorch#149200, #60356, #187924, #153798: peers by their rank in a group."""
    group, last = dist.new_group([1, 0]), dist.new_group([1])
    said, peer = [dist.get_rank()], 1 - dist.get_rank()
    dist.broadcast_object_list(said, group_src=0, group=group)
    assert said == dist.get_process_group_ranks(group)[:1]
    if dist.get_rank() == 1:
        got = [None]
        dist.gather_object("x", got, group_dst=0, group=last)
        assert got == ["x"]
    got, place = torch.zeros(1), dist.get_group_rank(group, peer)
    one = dist.P2POp(dist.isend, torch.ones(1) + peer, group=group, group_peer=place)
    for work in dist.batch_isend_irecv([one, dist.P2POp(dist.irecv, got, peer, group=group)]):
        work.wait()
    assert got.item() == 1 + dist.get_rank()
    assert dist.get_process_group_ranks(dist.new_subgroups(1)[0]) == [dist.get_rank()]


def d_functional():
    """pytorch/pytorch#130251: functional collectives of tensors that are not contiguous."""
    x, world = torch.arange(12.0).reshape(2, 3, 2).transpose(1, 2), dist.group.WORLD
    part = functional.reduce_scatter_single(x, "sum", 0, world)
    assert torch.equal(part, 2 * x[dist.get_rank() :][:1])
    assert torch.equal(functional.all_gather_single(x[:, 0], 0, world), torch.cat([x[:, 0]] * 2))


def d_half():
    """pytorch/pytorch#152300, #111131, pytorch/gloo#454, Lightning-AI/torchmetrics#1809."""
    parts = [torch.linspace(-65504, 65504, 4001).roll(n).half() for n in (0, 7)]
    x = parts[dist.get_rank()].clone()
    dist.all_reduce(x)
    assert torch.equal(x, (parts[0].float() + parts[1].float()).half())
    x = torch.full((3,), 1.5, dtype=torch.bfloat16)
    dist.all_reduce(x)
    both = [torch.zeros_like(x), torch.zeros_like(x)]
    dist.all_gather(both, x)
    assert torch.cat(both).tolist() == [3] * 6


def d_average():
    """meta-pytorch/torchcomms#287: an average divides by the number of ranks; integers, too."""
    for kind in (torch.float32, torch.int64, torch.uint8):
        x = torch.full((5,), 3 + 2 * dist.get_rank(), dtype=kind)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        assert x.tolist() == [4] * 5


def negative(*values):
    """These values, in memory with the other sign: torch's negative bit is set."""
    found = torch.complex(torch.zeros(len(values)), -torch.tensor(values)).conj().imag
    assert found.is_neg()
    return found


def d_negative_bit():
    """Gloo reduces, scatters and receives the memory of such a tensor, not its values."""
    x, out, got = negative(-2.0, -5.0), negative(0.0, 0.0), negative(0.0, 0.0)
    dist.all_reduce(x)
    dist.scatter(out, [negative(1.0, 2.0)] * 2 if dist.get_rank() == 0 else None, 0)
    if dist.get_rank() == 0:
        dist.send(negative(3.0, 4.0), 1)
        dist.recv(got, 1)
    else:
        dist.recv(got, 0)
        dist.send(got, 0)
    assert [t.tolist() for t in (x, out, got)] == [[-4, -10], [1, 2], [3, 4]]


def d_shards():
    """pytorch/pytorch#103306, pull request #115525: rows that ranks cannot share evenly."""
    mesh, x = tensor.init_device_mesh("cpu", (2,)), torch.arange(15.0).reshape(5, 3)
    rows = tensor.distribute_tensor(x, mesh, [tensor.Shard(0)])
    columns = rows.redistribute(placements=[tensor.Shard(1)])
    assert torch.equal(columns.full_tensor(), x) and torch.equal(rows.full_tensor(), x)
    part = tensor.DTensor.from_local(x, mesh, [tensor.Partial()])
    assert torch.equal(part.redistribute(placements=[tensor.Shard(1)]).full_tensor(), 2 * x)


def d_among():
    """pytorch/pytorch#20630, #24005: calls of the program's own beside those of DDP."""
    torch.manual_seed(1)
    module = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(3, 3)] * 2))
    for _ in range(4):
        loss = module(torch.ones(2, 3) * (dist.get_rank() + 1)).square().mean()
        shown = loss.detach().clone()
        work = dist.all_reduce(shown, async_op=True)
        loss.backward()
        dist.all_reduce(torch.ones(1))
        work.wait()
    both = [torch.zeros(3), torch.zeros(3)]
    dist.all_gather(both, module.module[0].bias.grad)
    assert torch.equal(*both)


def d_sizes():
    """pytorch/pytorch#91378: sizes that differ are an error that names them, not the end."""
    with pytest.raises(halay.HalayMismatch, match="3 float32.*5 float32"):
        dist.all_reduce(torch.ones(3 + 2 * dist.get_rank()))
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2


def d_again():
    """pytorch/pytorch#55967, #114585, #74666: a group is destroyed and made again."""
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group("halay", init_method="halay://")
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == 2


def h_options(hvd):
    """horovod/horovod#392, #526, #548, #2624, #2685: all that an optimizer's groups say."""
    rank = hvd.rank()
    for kind, options in ((torch.optim.Adam, {}), (torch.optim.SGD, {}),
                          (torch.optim.SGD, {"momentum": 0.9, "foreach": None})):  # fmt: skip
        layer = torch.nn.Linear(2, 1)
        optimizer = kind(layer.parameters(), lr=0.1 * (1 + rank), **options)
        if rank == 1 and kind is torch.optim.Adam:
            layer(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        assert optimizer.param_groups[0]["lr"] == 0.2
        want = 2 if kind is torch.optim.Adam else 0
        assert len(optimizer.state_dict()["state"]) == want


def h_frozen(hvd):
    """horovod/horovod#1608, #1725: parameters that want no gradient."""
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    layers[0].requires_grad_(False)
    optimizer = torch.optim.Adam(layers.parameters())
    layers(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=layers.named_parameters())
    layers(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def h_gradients(hvd):
    """horovod/horovod#2654: gradients of allgather and broadcast are means over the ranks."""
    x = torch.tensor([hvd.rank() + 1.0], requires_grad=True)
    (hvd.allgather(x) ** 2).sum().backward()
    assert x.grad.tolist() == [2 * (hvd.rank() + 1.0)]
    y = torch.ones(1, requires_grad=True)
    hvd.broadcast(y, 0).sum().backward()
    assert y.grad.tolist() == [1.0 - hvd.rank()]


def h_clipped(hvd):
    """horovod/horovod#1099, #2420, #2466: synchronize() once; calls in a wrong order."""
    layer = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(layer.state_dict(), 0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=layer.named_parameters())
    before = layer.bias.item()
    (layer(torch.ones(1, 2)).sum() * (hvd.rank() + 1)).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_value_(layer.parameters(), 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
    assert abs(before - layer.bias.item() - 1.0) < 1e-6
    optimizer.zero_grad()
    layer(torch.ones(1, 2)).sum().backward()
    with pytest.raises((AssertionError, RuntimeError), match="zero_grad"):
        optimizer.zero_grad()
    with pytest.raises((AssertionError, RuntimeError), match="backward_passes_per_step"):
        layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def h_absent(hvd):
    """horovod/horovod#597: a rank whose first pass leaves a parameter without a gradient."""
    module = Twice()
    hvd.broadcast_parameters(module.state_dict(), 0)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=module.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        module(torch.ones(1, 2))[hvd.rank()].sum().backward()
        optimizer.step()
    values = hvd.allgather(torch.cat([p.detach().reshape(1, -1) for p in module.parameters()], 1))
    assert torch.equal(values[0], values[1])


def h_joined(hvd):
    """horovod/horovod#3471: an allgather while another rank has joined is refused, and no more."""
    if hvd.rank() == 0:
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum, name="joined").tolist() == [1, 1]
        with pytest.raises(halay.HalayError, match="has joined"):
            hvd.allgather(torch.ones(2, 1), name="rows")
    hvd.join()


def h_normalized(hvd):
    """pytorch/pytorch#36530, horovod/horovod#2241: an empty batch on one rank."""
    layer = hvd.SyncBatchNorm(3)
    x = torch.arange(12.0).view(4, 3)[: 4 * (1 - hvd.rank())].requires_grad_()
    layer(x).square().sum().backward()
    whole = torch.arange(12.0).view(4, 3).mean(0) * 0.1
    assert torch.allclose(layer.running_mean, whole)


def h_scaled(hvd):
    """horovod/horovod#3160: GradScaler, with synchronize() before unscale_()."""
    layer = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(layer.state_dict(), 0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=layer.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = layer.bias.item()
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(layer(torch.ones(1, 2)).sum() * (1 + 2 * hvd.rank())).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    assert abs(before - layer.bias.item() - 4.0) < 1e-5


def h_sampled(hvd):
    """horovod/horovod#3143, #3399: what was trained on before a commit is not given out again."""
    from halay.torch.elastic import ElasticSampler, TorchState

    sampler = ElasticSampler(list(range(20)), shuffle=True, seed=3)
    state = TorchState(sampler=sampler)
    seen = list(sampler)[:4]
    for at in range(2):
        sampler.record_batch(at, 2)
    state.commit()
    list(sampler)
    sampler.record_batch(2, 2)  # after the commit: forgotten
    state.restore()
    state.sync()
    everyone = hvd.allgather_object(seen)
    left = hvd.allgather_object(list(sampler))
    used = {index for part in everyone for index in part}
    assert not used & {index for part in left for index in part}
    assert used | {index for part in left for index in part} == set(range(20))


def h_parts(hvd):
    """horovod/horovod#2259: alltoall in which ranks send or receive nothing."""
    rank = hvd.rank()
    out, counts = hvd.alltoall(torch.arange(2.0) + 10 * rank, torch.tensor([2, 0]))
    assert out.tolist() == ([0, 1, 10, 11] if rank == 0 else [])
    assert counts.tolist() == ([2, 2] if rank == 0 else [0, 0])
    out, _ = hvd.alltoall(torch.zeros(0), torch.tensor([0, 0]))
    assert out.numel() == 0


def h_kinds(hvd):
    """sands-lab/grace#2: allgather of small integers; of a scalar, with what to do instead."""
    for kind in (torch.int8, torch.uint8, torch.bool, torch.int16):
        assert hvd.allgather(torch.ones(2).to(kind)).tolist() == [1] * 4
    with pytest.raises(ValueError, match="unsqueeze"):
        hvd.allgather(torch.tensor(3.0))


def h_epochs(hvd):
    """horovod/horovod#2497: passes that are left over at the end of an epoch."""
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=layer.named_parameters(), backward_passes_per_step=2
    )
    for passes in (2, 1):
        for _ in range(passes):
            layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def h_two_optimizers(hvd):
    """horovod/horovod#2821: one backward pass through the parameters of two optimizers."""
    torch.manual_seed(hvd.rank())
    parts = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)]
    optimizers = []
    for at, part in enumerate(parts):
        hvd.broadcast_parameters(part.state_dict(), 0)
        named = [(f"{at}.{name}", p) for name, p in part.named_parameters()]
        adam = torch.optim.Adam(part.parameters())
        optimizers.append(hvd.DistributedOptimizer(adam, named_parameters=named))
    for _ in range(2):
        parts[1](parts[0](torch.randn(3, 2))).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    weights = hvd.allgather(parts[0].weight.detach().reshape(1, -1))
    assert torch.equal(weights[0], weights[1])


def all_of(prefix, *arguments):
    """The reports whose program failed on this rank, with the reason."""
    failed = []
    for name, function in list(globals().items()):
        if name.startswith(prefix):
            try:
                function(*arguments)
            except BaseException:
                failed.append(f"{name}: {function.__doc__}\n{traceback.format_exc()}")
                with contextlib.suppress(Exception):
                    dist.barrier()
    return failed


def rank_distributed():
    return all_of("d_")


def rank_horovod():
    import halay.torch as hvd

    return all_of("h_", hvd)


@pytest.mark.parametrize("launcher", ["halayrun", pytest.param("torchrun", marks=pytest.mark.long)])
def test_distributed(tmp_path, launcher):
    results = well(tmp_path, 2, rank_distributed, launcher=launcher)
    assert results == [[], []], "\n".join(results[0] + results[1])


def test_horovod(job):
    results = job(2, rank_horovod)
    assert results == [[], []], "\n".join(results[0] + results[1])
