# SPDX-License-Identifier: Apache-2.0
"""Calls that callbacks of futures make, works that nobody has, and errors at the end of a work."""

import copy
import datetime
import gc
import random
import threading
import time

import pytest
import torch
import torch.distributed as dist
from distributed_job import well
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.distributed.algorithms.model_averaging import averagers
from torch.nn.parallel import DistributedDataParallel

from halay.distributed import _job, _tensors
from halay.distributed._work import HalayWork
from halay.errors import HalayTimeout


def late():
    time.sleep(random.random() * 0.002)


def future_of(tensor, group=None):
    return dist.all_reduce(tensor, group=group, async_op=True).get_future()


def rank_order():
    """Calls of each kind in callbacks of one size, whose threads come in any order."""
    rank, size = dist.get_rank(), dist.get_world_size()
    random.seed(rank)
    pair = dist.new_group([0, 1])
    peer = 1 - rank

    def reduced(tensor, _):
        dist.all_reduce(tensor)  # blocks
        return tensor

    def waited(tensor, _):
        return future_of(tensor).wait()[0]

    def gathered(tensor, _):
        out = [torch.zeros_like(tensor) for _ in range(size)]
        dist.all_gather(out, tensor, async_op=True).wait()
        return sum(out)

    def scattered(tensor, _):
        out = torch.zeros_like(tensor)
        dist.reduce_scatter_tensor(out, tensor.repeat(size))
        return out

    def coalesced(tensor, _):
        # Not by dist._coalescing_manager(): torch keeps its state for the group, not the thread.
        more = torch.ones(3)
        dist.all_reduce_coalesced([tensor, more], async_op=True).wait()
        return tensor * (more[0] / size)

    def objects(tensor, _):
        got = [None] * size
        dist.all_gather_object(got, tensor.tolist())
        return torch.tensor(got).sum(0)

    def swapped(tensor, _):
        if rank > 1:
            return size * tensor
        got = torch.zeros_like(tensor)
        works = [dist.isend(tensor, peer), dist.irecv(got, peer)]
        [work.wait() for work in works]
        return size * got

    def of_two(tensor, _):
        if rank > 1:
            return size * tensor
        dist.all_reduce(tensor, group=pair)
        return tensor / 2 * size

    def started(call, tensor):
        def callback(future):
            late()
            return call(tensor, future)

        return callback

    kinds = [reduced, waited, gathered, scattered, coalesced, objects, swapped, of_two]
    for kind in [*kinds, random.Random(5)]:
        for step in range(8):
            chosen = [kind if callable(kind) else kind.choice(kinds) for _ in range(4)]
            starts = [torch.full((8,), float(10**j)) for j in range(4)]
            found = [
                future_of(torch.ones(100 * j + 1)).then(started(call, tensor))
                for j, (call, tensor) in enumerate(zip(chosen, starts))
            ]
            mine = torch.full((8,), 7.0)
            dist.all_reduce(mine)  # of the program, meanwhile
            assert (mine == 7 * size).all()
            for j, future in enumerate(found):
                assert (future.wait() == size * 10**j).all(), (chosen[j].__name__, step, j)


def rank_chains():
    """Callbacks of what callbacks return, callbacks in callbacks, and of what is done already."""
    rank, size = dist.get_rank(), dist.get_world_size()
    random.seed(rank)

    def add(value):
        def call(future):
            late()
            data = torch.full((4,), float(value))
            dist.all_reduce(data)
            return data

        return call

    def inner(value):
        def call(_):
            late()
            one, two = future_of(torch.ones(1)), future_of(torch.ones(1))
            first = one.then(add(value))
            second = two.then(add(10 * value))
            if rank:  # waits for the later one alone, before its own next call
                late()
            total = second.wait()
            mine = add(100 * value)(None)
            return first.wait() + total + mine

        return call

    for _ in range(5):
        done = future_of(torch.ones(3))
        done.wait()
        futures = [
            done.then(inner(1)),
            done.then(add(2)).then(add(3)),
            future_of(mine()).then(add(4)),
        ]
        futures += [futures[0].then(add(5)), futures[1].then(inner(6))]
        seen = threading.Event()
        futures[-1].add_done_callback(lambda _, seen=seen: seen.set())
        wanted = [111, 3, 4, 5, 666]
        assert [f.wait().tolist() for f in futures] == [[w * size] * 4 for w in wanted]
        assert seen.wait(60)

    def again(value, depth):
        def call(future):
            late()
            work = dist.all_reduce(torch.full((2,), float(value)), async_op=True)
            if depth == 0:
                return work.get_future().wait()[0]
            below = work.get_future().then(again(value, depth - 1)).wait()
            return below + add(value)(None)[:2]

        return call

    futures = [future_of(mine()).then(again(10**i, 4)) for i in range(4)]
    for i, future in enumerate(futures):
        assert future.wait().tolist() == [5.0 * size * 10**i] * 2
    with pytest.raises(RuntimeError, match="KeyError: 'here'"):
        future_of(mine()).then(lambda _: {}["here"]).wait()
    with pytest.raises(RuntimeError, match="KeyError"):
        future_of(mine()).then(lambda _: {}["here"]).then(lambda f: f.value()).wait()


def mine():
    return torch.ones(2)


def rank_many():
    """More callbacks than there are threads, of which the first is ready last."""
    size = dist.get_world_size()
    first = torch.ones(3)
    futures = [
        (future_of(first) if i == 0 else future_of(mine())).then(
            lambda _, i=i: future_of(torch.full((2,), float(i))).wait()[0]
        )
        for i in range(300)
    ]
    for i, future in enumerate(futures):
        assert (future.wait() == size * i).all()


def rank_collected():
    """Callbacks of torch.futures.collect_all() have their places among the others."""
    rank, size = dist.get_rank(), dist.get_world_size()
    random.seed(rank)

    def reduced(value):
        def call(_):
            late()
            tensor = torch.full((64,), float(value))
            dist.all_reduce(tensor)
            return tensor

        return call

    for step in range(20):
        begun = [future_of(torch.ones(1 + 1000 * i)) for i in range(8)]
        if step % 4 == rank:  # here, all are done before
            [future.wait() for future in begun]
        pairs = [torch.futures.collect_all(begun[i : i + 2]) for i in range(0, 8, 2)]
        found = [pair.then(reduced(10**i)) for i, pair in enumerate(pairs)]
        found.append(begun[0].then(reduced(10**4)))
        program = torch.full((64,), 7.0)
        dist.all_reduce(program)
        assert (program == 7 * size).all()
        for i, future in enumerate(found):
            assert (future.wait() == size * 10**i).all(), (step, i)
        held = [future.wait()[0][0].item() for future in pairs[0].wait()]
        assert held == [size, size]
        tensors = torch.futures.wait_all(begun)
        assert [t[0].numel() for t in tensors] == [1 + 1000 * i for i in range(8)]
    # Who waits for a collection in a callback waits for the last of its callbacks.
    early, go, later = future_of(mine()), threading.Event(), []

    def waits(_):
        assert go.wait(60)
        found = torch.futures.wait_all(later)
        dist.all_reduce(mine())
        return found

    first = future_of(mine()).then(waits)
    later += [early.then(reduced(i)) for i in range(3)]
    go.set()
    assert [tensor[0].item() for tensor in first.wait()] == [0, size, 2 * size]
    failed = torch.futures.collect_all([future_of(mine()), early.then(lambda _: {}["here"])])
    with pytest.raises(RuntimeError, match="KeyError: 'here'"):
        failed.then(lambda future: future.value()).wait()
    plain = torch.futures.Future()
    plain.set_result(3)
    both = torch.futures.collect_all([plain, early])
    assert both.wait()[0].wait() == 3


def rank_never():
    """A callback that does not end holds back the calls of later ones, but not for ever."""
    go, one, two = threading.Event(), future_of(mine()), future_of(mine())
    dist.barrier()
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=1))  # no call is made under it
    stuck = one.then(lambda _: go.wait(100))
    later = two.then(lambda _: dist.all_reduce(mine()))
    with pytest.raises(HalayTimeout, match="attached before it has not ended"):
        later.wait()
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=100))
    go.set()
    assert stuck.wait()
    future_of(mine()).then(lambda _: dist.all_reduce(mine())).wait()


def rank_finish():
    """What is raised while a work is finished is its error alone."""
    rank, size = dist.get_rank(), dist.get_world_size()
    finish = _tensors.Target.finish

    def broken(_):
        raise MemoryError("no memory")

    def strided():
        return torch.ones(4, 2)[:, 0]

    def received(change):
        """Into a tensor that changes before there is anything."""
        bad = strided()
        work = dist.irecv(bad, (rank - 1) % size)
        change(bad)
        dist.barrier()
        sent = dist.isend(torch.ones(4), (rank + 1) % size)
        return work, sent

    def short(_):
        _tensors.Target.finish = broken
        work = dist.all_reduce(strided(), async_op=True)
        _tensors.Target.finish = finish
        return work, dist.all_reduce(torch.ones(4), async_op=True)

    kinds = [
        lambda: received(lambda bad: bad.resize_(7)),
        lambda: received(lambda bad: bad.untyped_storage().resize_(0)),
        lambda: short(None),
    ]
    for kind in kinds:
        for how in ("work", "future", "callback", "nobody"):
            work, beside = kind()
            future = work.get_future() if how in ("future", "callback") else None
            if how == "callback":
                future = future.then(lambda f: f.value())
            good = torch.ones(3), strided()
            later = [dist.all_reduce(tensor, async_op=True) for tensor in good]
            if how == "nobody":  # the thread comes to its end, and goes on
                end = time.monotonic() + 60
                while not work._done and time.monotonic() < end:
                    time.sleep(0.001)
            else:
                with pytest.raises((RuntimeError, MemoryError)):
                    (future or work).wait()
            assert work.is_completed() and not work.is_success() and work.exception() is not None
            for other in (beside, *later):
                other.wait()
            assert all((tensor == size).all() for tensor in good)


def works_alive():
    gc.collect()
    return sum(type(one) is HalayWork for one in gc.get_objects())


def rank_unwaited(n):
    """Works that nobody waits for are let go of, but for the last, and small ones."""
    job, before = _job.job(), works_alive()
    group, opts = dist.group.WORLD, dist.AllreduceOptions()
    opts.asyncOp = True
    for i in range(n):
        group.allreduce([torch.ones(2)], opts)
        if i % 500 == 499:
            dist.barrier()
    data = torch.ones(100_000)
    group.allreduce([data], opts)
    dist.barrier()
    end = time.monotonic() + 60
    while job.pending and time.monotonic() < end:
        time.sleep(0.01)
    assert not job.pending and len(job.left) == min(n + 1, _job.MOST_LEFT)
    assert job.left[-1].results == [] and len(job.left[-2].results) == 1
    more = works_alive() - before
    assert more <= _job.MOST_LEFT + 10, f"{more} of {n} works are alive"


def rank_kept_in_cxx():
    """A work that C++ alone has is there however many come after it."""
    kept, group = torch.ones(2), dist.group.WORLD
    ours = torch.ops._c10d_functional.all_reduce(torch.ones(2), "sum", group.group_name)
    torch._C._distributed_c10d._register_work(kept, dist.all_reduce(kept, async_op=True))
    rank_unwaited(_job.MOST_LEFT + 100)
    for tensor in (ours, kept):
        total = torch.ops._c10d_functional.wait_tensor(tensor)
        assert total.tolist() == [dist.get_world_size()] * 2


def rank_join(divide):
    """Uneven batches: torch keeps the work in C++ alone."""
    rank = dist.get_rank()
    torch.manual_seed(1)
    wrapped = DistributedDataParallel(torch.nn.Linear(3, 2), bucket_cap_mb=1e-5)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.5)
    with wrapped.join(divide_by_initial_world_size=divide):
        for step in range(2 + 2 * rank):
            wrapped(torch.full((2, 3), step + 1.0 + rank)).square().sum().mul(1e-3).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [p.tolist() for p in wrapped.parameters()]


def rank_builtin():
    """torch's built-in hooks, in C++, read futures' values; an error comes with its text."""
    rank, found = dist.get_rank(), []
    for hook in (dist.BuiltinCommHookType.FP16_COMPRESS, dist.BuiltinCommHookType.ALLREDUCE):
        torch.manual_seed(2)
        wrapped = DistributedDataParallel(torch.nn.Linear(3, 2), bucket_cap_mb=1e-5)
        wrapped._register_builtin_comm_hook(hook)
        for _ in range(3):
            wrapped(torch.full((2, 3), rank + 1.0)).sum().backward()
        found.append([p.grad.tolist() for p in wrapped.parameters()])
    return found


def rank_joins():
    return [rank_join(True), rank_join(False), rank_builtin()]


def rank_builtin_error():
    group = dist.new_group([0, 1])
    if dist.get_rank() > 1:
        return
    wrapped = DistributedDataParallel(torch.nn.Linear(3, 2), process_group=group)
    wrapped._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    with pytest.raises(RuntimeError, match="allreduce of 8 float16"):
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(5), group=group)
        else:
            wrapped(torch.ones(2, 3)).sum().backward()


class Net(torch.nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.unused = torch.nn.Linear(*widths[:2])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def state_of(name):
    if name == "post_local":
        halves = [dist.new_group([r]) for r in range(dist.get_world_size())]
        state = post_localSGD_hook.PostLocalSGDState(None, halves[dist.get_rank()], 100)
        return state, post_localSGD_hook.post_localSGD_hook
    if name == "batched":  # torch 2.13 gives it one matrix where it takes several
        several = power._orthogonalize
        power._orthogonalize = lambda matrix, epsilon=0: several(
            matrix if matrix.dim() == 3 else matrix.unsqueeze(0), epsilon
        )
    if name in ("power", "batched"):
        state = power.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
        )
        return state, power.powerSGD_hook if name == "power" else power.batched_powerSGD_hook
    if name == "power_fp16":
        state = power.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        return state, default_hooks.fp16_compress_wrapper(power.powerSGD_hook)
    return None, default_hooks.fp16_compress_hook


HOOKS = ["power", "batched", "fp16", "post_local", "power_fp16"]


def trained(name, widths, unused, steps=6):
    """The parameters and the mean loss, after steps with each bucket of one layer."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    net = Net(widths)
    wrapped = DistributedDataParallel(net, bucket_cap_mb=1e-5, find_unused_parameters=unused)
    if not unused:
        net.unused.requires_grad_(False)
        wrapped = DistributedDataParallel(net, bucket_cap_mb=1e-5)
    wrapped.register_comm_hook(*state_of(name))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.randn(4 * size, widths[0], generator=torch.Generator().manual_seed(step))
        loss = wrapped(x[4 * rank : 4 * rank + 4]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach() / size
    dist.all_reduce(mean)
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()]), mean.item()


def alone(widths, steps=6):
    """The mean loss of one process, without compression."""
    size = dist.get_world_size()
    torch.manual_seed(3)
    net = Net(widths)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.randn(4 * size, widths[0], generator=torch.Generator().manual_seed(step))
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def rank_hooks(times):
    equal, different = [12] * 7, [12, 40, 12, 7, 30, 12]
    for _ in range(times):
        for name in HOOKS:
            for widths in (equal, different):
                for unused in (False, True):
                    mine, loss = trained(name, widths, unused)
                    first = mine.clone()
                    dist.broadcast(first, 0)
                    same = torch.tensor(float(torch.equal(mine, first)))
                    dist.all_reduce(same)
                    assert same == dist.get_world_size(), (name, widths, unused)
                    near = 1e-3 if name in ("fp16", "post_local") else 0.2
                    wanted = alone(widths)
                    assert abs(loss - wanted) < near * wanted, (name, widths, unused, loss, wanted)


START, PERIOD, STEPS = 3, 4, 14  # of PostLocalSGD: when ranks go apart, and meet


def batch_of(step, rank, inputs):
    rows, generator = 4 * dist.get_world_size(), torch.Generator().manual_seed(step)
    x = torch.randn(rows, inputs, generator=generator)
    return x[4 * rank : 4 * rank + 4]


def local_sgd(widths, halves):
    """The parameters after steps of which the later ones reduce in this rank's group alone."""
    from torch.distributed.optim import PostLocalSGDOptimizer  # which takes seconds

    rank = dist.get_rank()
    torch.manual_seed(3)
    net = Net(widths)
    net.unused.requires_grad_(False)
    wrapped = DistributedDataParallel(net, bucket_cap_mb=1e-5)
    state = post_localSGD_hook.PostLocalSGDState(None, halves[rank % 2], START)
    wrapped.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = averagers.PeriodicModelAverager(period=PERIOD, warmup_steps=START)
    inner = torch.optim.SGD((p for p in net.parameters() if p.requires_grad), lr=0.1)
    optimizer = PostLocalSGDOptimizer(inner, averager)
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(batch_of(step, rank, widths[0])).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def local_sgd_alone(widths, of_rank):
    """The same of one rank, by a process that has the models of all."""
    size = dist.get_world_size()
    torch.manual_seed(3)
    first = Net(widths)
    nets = [copy.deepcopy(first) for _ in range(size)]
    for step in range(STEPS):
        for rank, net in enumerate(nets):
            net.zero_grad()
            net(batch_of(step, rank, widths[0])).square().mean().backward()
        for layers in zip(*(net.layers.parameters() for net in nets)):
            grads = torch.stack([p.grad for p in layers])
            for rank, p in enumerate(layers):
                ours = grads if step < START else grads[rank % 2 :: 2]
                p.data -= 0.1 * ours.mean(0)
            if step >= START and (step - START) % PERIOD == 0:
                mean = torch.stack([p.data for p in layers]).mean(0)
                for p in layers:
                    p.data.copy_(mean)
    return torch.cat([p.detach().reshape(-1) for p in nets[of_rank].parameters()])


def rank_local_sgd(times):
    size = dist.get_world_size()
    halves = [dist.new_group(list(range(half, size, 2))) for half in range(2)]
    for _ in range(times):
        for widths in ([12] * 7, [12, 40, 12, 7, 30, 12]):
            mine = local_sgd(widths, halves)
            torch.testing.assert_close(mine, local_sgd_alone(widths, dist.get_rank()))
            all_of_them = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(all_of_them, mine)
            for rank, theirs in enumerate(all_of_them):
                assert torch.equal(theirs, all_of_them[rank % 2])
            assert not torch.equal(*all_of_them[:2])  # they have gone apart since they met


BODIES = [rank_order, rank_chains, rank_collected, rank_many, rank_finish, rank_never]


def rank_bodies():
    for body in BODIES:
        body()
    rank_kept_in_cxx()
    rank_builtin_error()


@pytest.mark.sampled
@pytest.mark.parametrize("nranks", [2, 3])
def test_callbacks(tmp_path, nranks):
    well(tmp_path, nranks, rank_bodies)


LONG = [pytest.param(50, nranks, marks=pytest.mark.long) for nranks in (2, 3, 4)]


@pytest.mark.parametrize("times, nranks", [(1, 2), (1, 3), *LONG])
def test_hooks(tmp_path, times, nranks):
    well(tmp_path, nranks, rank_hooks, times, timeout=180 if times == 1 else 7200)


@pytest.mark.parametrize("times, nranks", [(1, 2), *LONG])
def test_local_sgd(tmp_path, times, nranks):
    well(tmp_path, nranks, rank_local_sgd, times, timeout=180 if times == 1 else 7200)


@pytest.mark.long
def test_unwaited(tmp_path):
    well(tmp_path, 2, rank_unwaited, 10_000)


def test_join(tmp_path):
    ours = well(tmp_path, 2, rank_joins)
    theirs = well(tmp_path, 2, rank_joins, backend="gloo", env={"GLOO_SOCKET_IFNAME": "lo"})
    assert ours[0] == ours[1] and ours == theirs
