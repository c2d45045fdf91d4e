# SPDX-License-Identifier: Apache-2.0
"""The overloads of a group's methods that torch's binding has, and many coalesced calls."""

import datetime
import re

import pytest
import torch
import torch.distributed as dist
from distributed_job import well
from torch._C import _distributed_c10d as c10d

from halay.distributed._group import HalayProcessGroup
from halay.distributed._overloads import FORMS
from halay.errors import HalayError

MAX = dist.ReduceOp.MAX
MINUTE = datetime.timedelta(minutes=1)
UNTOUCHED = {"split_group", "new_group", "set_timeout", "monitored_barrier", "get_group_store"}


def mine(rows=3):
    return torch.full((rows, 2), dist.get_rank() + 1.0)


def told(kind, **fields):
    made = getattr(c10d, kind)()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def are(result, *values):
    """The values of tensors, each of which has one value throughout."""
    tensors = [result] if isinstance(result, torch.Tensor) else result
    found = [t.unique().tolist() for t in tensors]
    assert found == [[v] for v in values], (found, values)


def reductions(world, rank):
    """(the tensor, how it is reduced, what it is then)"""
    for op in ((), (MAX,), (MAX, MINUTE), (dist.ReduceOp.SUM, None)):
        value = 2.0 if MAX in op else 3.0
        for alone in (True, False):
            x = mine()
            data = x if alone else [x]
            yield x, lambda data=data, op=op: world.allreduce(data, *op), value
    x = mine()
    yield x, lambda x=x: world.allreduce(tensor=x, op=MAX, timeout=MINUTE), 2.0
    x = mine()
    yield x, lambda x=x: world.allreduce(tensors=[x], op=MAX), 2.0
    x = mine()
    yield x, lambda x=x: world.allreduce(x, timeout=MINUTE), 3.0
    for opts in ("AllreduceOptions", "AllreduceCoalescedOptions"):
        x, call = mine(), world.allreduce if "Co" not in opts else world.allreduce_coalesced
        yield x, lambda x=x, c=call, o=opts: c([x], told(o, reduceOp=MAX)), 2.0
        x = mine()
        yield x, lambda x=x, c=call, o=opts: c(tensors=[x], opts=told(o, reduceOp=MAX)), 2.0
    for args, named in (
        ((1,), {}),
        ((1, MAX, MINUTE), {}),
        ((), {"root": 1}),
        ((), {"root": 1, "op": MAX, "timeout": None}),
    ):
        x, value = mine(), 2.0 if MAX in (*args, *named.values()) else 3.0
        yield x, lambda x=x, a=args, n=named: world.reduce(x, *a, **n), value if rank else None
    x = mine()
    yield x, lambda x=x: world.reduce([x], told("ReduceOptions", rootRank=1)), 3.0 if rank else None


def rank_reductions():
    rank, world = dist.get_rank(), dist.group.WORLD
    for x, call, value in reductions(world, rank):
        assert call().wait()
        if value is not None:  # else it is not the root
            are(x, value)
    for outputs, inputs, more, named, value in (
        ("output", "input", (), {}, 3.0),
        ("output", "input", (MAX,), {}, 2.0),
        ("output", "input", (MAX, MINUTE), {}, 2.0),
        ("output", "input", (), {"op": MAX, "timeout": None}, 2.0),
        ("output_tensors", "input_tensors", (), {}, 3.0),
        ("output_tensors", "input_tensors", (told("ReduceScatterOptions"),), {}, 3.0),
    ):
        lists = outputs == "output_tensors"
        x, parts = mine(), [mine() + r for r in range(2)]
        out, of = ([x], [parts]) if lists else (x, parts)
        world.reduce_scatter(out, of, *more, **named).wait()
        are(x, value + rank * (1 if value == 2.0 else 2))
        if not more:
            x.zero_()
            world.reduce_scatter(**{outputs: out, inputs: of}, **named).wait()
            are(x, value + rank * (1 if value == 2.0 else 2))
    for name in ("_reduce_scatter_base", "reduce_scatter_single"):
        x = mine()
        getattr(world, name)(outputTensor=x, inputTensor=mine(6)).wait()
        are(x, 3.0)
        getattr(world, name)(x, mine(6), told("ReduceScatterOptions", reduceOp=MAX)).wait()
        are(x, 2.0)
    for name in ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"):
        x = mine()
        getattr(world, name)(outputs=[x], inputs=[mine(6)]).wait()
        are(x, 3.0)


def rank_moves():
    rank, world = dist.get_rank(), dist.group.WORLD
    for args, named in (((1,), {}), ((1, MINUTE), {}), ((), {"root": 1, "timeout": MINUTE})):
        x = mine()
        world.broadcast(x, *args, **named).wait()
        are(x, 2.0)
        x, outs = mine(), [mine(), mine()] if rank else []
        world.gather(outs, x, *args, **named).wait()
        are(outs, *((1.0, 2.0) if rank else ()))
        world.scatter(x, [mine() + 5, mine() + 6] if rank else [], *args, **named).wait()
        are(x, 7.0 + rank)
    x, outs = mine(), [mine(), mine()] if rank else []
    world.gather(output_tensors=outs, input_tensor=x, root=1).wait()
    are(outs, *((1.0, 2.0) if rank else ()))
    root = {"rootRank": 1}
    lists = [outs] if rank else []
    world.gather(lists, input_tensors=[x], opts=told("GatherOptions", **root)).wait()
    world.scatter(output_tensor=x, input_tensors=outs, root=1).wait()
    are(x, 1.0 + rank)
    x.zero_()
    world.scatter([x], lists, told("ScatterOptions", **root)).wait()
    are(x, 1.0 + rank)
    world.broadcast([x], opts=told("BroadcastOptions", **root)).wait()
    are(x, 2.0)
    for args, named in (((), {}), ((MINUTE,), {}), ((None,), {}), ((), {"timeout": MINUTE})):
        outs = [mine(), mine()]
        world.allgather(outs, mine(), *args, **named).wait()
        are(outs, 1.0, 2.0)
        assert world.barrier(*args, **named).wait()
        out = mine(2)
        for name in ("alltoall_base", "all_to_all_single"):
            getattr(world, name)(out.zero_(), mine(2), [], [], *args, **named).wait()
            are(out.chunk(2), 1.0, 2.0)
    assert world.barrier(told("BarrierOptions")).wait()
    outs = [mine(), mine()]
    world.allgather(output_tensors=outs, input_tensor=mine()).wait()
    are(outs, 1.0, 2.0)
    for name in ("_allgather_base", "all_gather_single"):
        out = mine(6)
        getattr(world, name)(output=out, input=mine()).wait()
        are(out.chunk(2), 1.0, 2.0)
    for name in ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"):
        out = mine(6)
        getattr(world, name)(outputs=[out], inputs=[mine()]).wait()
        are(out.chunk(2), 1.0, 2.0)
    outs = [[mine()], [mine()]]
    world.allgather_coalesced(output_lists=outs, input_list=[mine()]).wait()
    are([row[0] for row in outs], 1.0, 2.0)
    x = mine()
    work = world.recv([x], srcRank=0, tag=3) if rank else world.send([x], dstRank=1, tag=3)
    work.wait()
    are(x, 1.0)


def rank_refusals():
    """A tensor is no list of its rows, and what the binding takes in no overload is refused."""
    world, x = dist.group.WORLD, mine(2)
    for call in (
        lambda: world.broadcast(x),
        lambda: world.reduce(x),
        lambda: world.gather([x, x], x),
        lambda: world.scatter(x, [x, x]),
        lambda: world.allreduce_coalesced(x),
        lambda: world.allgather_coalesced(x, x),
        lambda: world.alltoall(x, x),
        lambda: world.all_gather_single_coalesced(x, x),
        lambda: world.reduce_scatter_single_coalesced(x, x),
        lambda: world.send(x, 0, 0),
        lambda: world.recv(x, 0, 0),
        lambda: world.allreduce(x, 3),
        lambda: world.allreduce(x, MAX, MINUTE, 1),
        lambda: world.allreduce(x, MAX, op=MAX),
        lambda: world.allreduce(x, root=1),
        lambda: world.allgather([x, x]),
        lambda: world.send([x], 0, 0, 0),
        lambda: world.barrier(3),
    ):
        with pytest.raises(TypeError):
            call()
    if dist.get_backend() == "halay":  # the binding sees no list in a tensor in a list, either
        for call in (
            lambda: world.allgather(x, x),
            lambda: world.allgather([x], [x]),
            lambda: world.allgather_coalesced([x, x], [x, x]),
            lambda: world.reduce_scatter(x, x),
        ):
            with pytest.raises(ValueError, match="list of 2 tensors"):
                call()
    are(x, dist.get_rank() + 1.0)
    dist.barrier()


def rank_many(count):
    """More coalesced calls than a group of the library can have."""
    rank, world = dist.get_rank(), dist.group.WORLD
    tensors = [torch.full((1,), rank + 1.0) for _ in range(count)]
    work = world.allreduce_coalesced(tensors)
    assert work.wait() and work.is_success() and len(work.result()) == count
    assert all(t.item() == 3.0 for t in tensors)


def rank_part():
    """What fails in the first of the groups fails on all ranks, and none starts the others."""
    last = torch.ones(1)
    tensors = [torch.ones(1 + dist.get_rank() * (i == 9)) for i in range(5000)]
    work = dist.group.WORLD.allreduce_coalesced([*tensors, last])
    with pytest.raises(HalayError, match="group"):
        work.wait()
    assert not work.is_success() and last.item() == 1.0
    future = work.get_future()
    with pytest.raises(HalayError, match="group"):
        future.wait()
    x = mine()
    dist.all_reduce(x)
    are(x, 3.0)


BODIES = [rank_reductions, rank_moves, rank_refusals]


def rank_bodies(names):
    for name in names:
        globals()[name]()


@pytest.mark.parametrize("backend", ["halay", "gloo"])
def test_overloads(tmp_path, backend):
    """Gloo's group has torch's own methods: what holds there has to hold here."""
    well(tmp_path, 2, rank_bodies, [body.__name__ for body in BODIES], backend=backend)


def test_many_coalesced(tmp_path):
    well(tmp_path, 2, rank_many, 66000)


def test_failed_part(tmp_path):
    well(tmp_path, 2, rank_part)


def documented(name):
    """The names of the parameters of each overload, as the binding's text has them."""
    for line in (getattr(c10d.ProcessGroup, name).__doc__ or "").splitlines():
        found = re.match(rf"(?:\d+\. )?{name}\(self: [\w.]+, (.*)\) -> ", line)
        if found:
            yield re.findall(r"(?:^|, )(\w+): ", found[1])


def test_documented():
    """Each overload of each method that Halay overrides is one that its form takes."""
    checked = 0
    for name, method in vars(HalayProcessGroup).items():
        if name.startswith("__") or not callable(method) or not hasattr(c10d.ProcessGroup, name):
            continue
        form = FORMS.get(method.__name__)
        for names in documented(name) if name not in UNTOUCHED else ():
            if form is None:
                assert not {"opts", "timeout", "tensors"} & set(names), f"{name} has no form"
                continue
            count = len(form.names)
            for given, known in zip(names, form.names):
                assert given in known, (name, names)
            rest = names[count:]
            assert rest in (["opts"], form.more) or not rest, (name, names)
            checked += 1
    assert checked >= 20
