# SPDX-License-Identifier: Apache-2.0
"""The process group: c10d's calls, turned into halay.h's.

Of c10d's classes only ProcessGroup can be derived from in Python (its C++ side calls back into
overridden methods), not Backend. torch hands the parent group's new_group() every request for a
sub-group, on members and on others; its members alone make it.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from functools import partial, wraps
from typing import Any, Callable, Optional

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed.constants import default_pg_timeout

from .. import _tensors
from .._core import deadline_s, ffi, interrupted, lib, refuse_in_handler
from ..errors import HalayError, HalayTimeout
from . import _job
from ._callbacks import here
from ._monitor import Monitor
from ._oneself import Oneself
from ._overloads import FORMS
from ._sparse import all_reduce as all_reduce_sparse
from ._tensors import (
    IN_PLACE,
    Target,
    address,
    apart,
    check,
    devices_of,
    flat,
    moved_type,
    op_of,
    put,
    same,
    scale,
    scaled,
    sizes,
    source,
    type_of,
    writable,
)
from ._work import HalayWork

MOST_TAGS = 4096
MOST_TOGETHER = 4096  # coalesced calls in one group
BETWEEN_TWO = ("send", "recv")
STARTS_NOTHING = (
    *("getBackendName", "name", "setGroupName", "getGroupName", "setGroupDesc", "getGroupDesc"),
    *("get_group_store", "_get_backend", "_set_default_timeout", "set_timeout", "new_group"),
    *("revoke", "shutdown", "abort", "monitored_barrier"),
)

Tensors = Sequence[torch.Tensor]
Finish = Optional[Callable[[], None]]


_Base: Any = c10d.ProcessGroup


class HalayProcessGroup(_Base):  # type: ignore[misc]
    """Ranks of the job, and their communicator."""

    def __init__(
        self, store: c10d.Store, job: _job.Job, comm: Any, timeout: datetime.timedelta | None
    ) -> None:
        """timeout: None if the communicator has one that stays."""
        rank, size = ffi.new("int *"), ffi.new("int *")
        job.must(lib.halay_comm_rank(comm, rank))
        job.must(lib.halay_comm_size(comm, size))
        # The constructor that also takes the store makes no class that can be derived from.
        super().__init__(int(rank[0]), int(size[0]))
        self._store = store
        self._monitor = Monitor(store, int(rank[0]), int(size[0]))
        self._job = job
        self._comm = comm
        self._names = ["", "undefined"]
        self._left = False
        self._tags: dict[tuple[int, int], Any] = {}  # communicators, by peer and tag
        self._oneself = Oneself(job, comm)
        self._bundle: HalayWork | None = None  # of calls that are one, and
        self._starts: list[Callable[[Any], int]] = []  # what starts each, when all are known
        self._inner: HalayProcessGroup | None = None  # of the same ranks: for callbacks
        self._is_inner = False
        # Calls on CUDA tensors wait for a stream of the group's own, which is made to wait for
        # the program's: so it never has to be changed while calls are under way.
        self._stream: Any = None
        self._behind = False  # the communicator waits for it
        # The library's own setting of a deadline wins over torch's default of 30 minutes.
        self._limit = datetime.timedelta(seconds=deadline_s())
        if timeout is not None and not os.environ.get("HALAY_DEADLINE"):
            self.set_timeout(timeout)

    # ---------------------------------------------------------------- what torch asks of a group

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in _tensors.DEVICES]

    def getBackendName(self) -> str:
        return "halay"

    def name(self) -> str:
        return "halay"

    # torch's side keeps name and description in the back ends that a group has; this one has none.
    def setGroupName(self, name: str) -> None:
        self._names[0] = name

    def getGroupName(self) -> str:
        return self._names[0]

    def setGroupDesc(self, text: str) -> None:
        self._names[1] = text

    def getGroupDesc(self) -> str:
        return self._names[1]

    def get_group_store(self) -> c10d.Store:
        return self._store

    # There is one back end for all devices, the group itself.
    def _get_backend(self, device: object) -> HalayProcessGroup:
        return self

    supports_coalescing = True
    supports_splitting = True
    supports_time_estimate = False
    options = None  # which split_group() copies

    def eager_connect_single_device(self, device: object) -> None:
        """init_process_group(device_id=...) calls it: nothing is to be connected beforehand."""

    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        self.set_timeout(timeout)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        nanoseconds = max(1, int(timeout.total_seconds() * 1e9))
        for group in (self, self._inner):
            if group is not None:
                self._job.must(lib.halay_comm_set_deadline(group._comm, nanoseconds))
        self._limit = timeout

    def new_group(
        self,
        ranks: list[int],
        timeout: datetime.timedelta,
        pg_options: object = None,
        group_name: str = "",
        group_desc: str | None = None,
    ) -> HalayProcessGroup | None:
        """Collective over the ranks in the list, which are this group's; None on others."""
        return self._child(ranks, timeout, group_name, group_desc)

    def split_group(
        self,
        ranks: list[int],
        timeout: datetime.timedelta | None = None,
        opts: object = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: object = None,
    ) -> HalayProcessGroup | None:
        """As new_group(): torch calls it on the group that it splits, on all ranks of it."""
        limit = timeout or default_pg_timeout
        return self._child(ranks, limit, group_name or "", group_desc)

    def _child(
        self, ranks: list[int], timeout: datetime.timedelta, name: str, text: str | None
    ) -> HalayProcessGroup | None:
        self._usable()
        of = [int(rank) for rank in ranks]
        if len(set(of)) < len(of) or not 0 <= min(of, default=-1) <= max(of) < self.size():
            raise ValueError(
                f"halay new_group: the ranks {of} are not among the {self.size()} of the group, "
                "each once"
            )
        if self.rank() not in of:
            return None
        parent = self._job.parent if self._comm == self._job.world else self._comm
        comm = self._job.group(parent, of, "new_group")
        store = c10d.PrefixStore(f"{name}/", self._store)
        made = HalayProcessGroup(store, _job.share(self._job), comm, None)
        made._set_group_name(name)
        made._set_group_desc(text or "undefined")
        try:
            made.barrier().wait()  # a rank that does not come is named here, by the job's deadline
            if not os.environ.get("HALAY_DEADLINE"):
                made.set_timeout(timeout)
        except BaseException:
            made.shutdown()
            raise
        return made

    def _comms(self) -> list[Any]:
        inner = self._inner._comms() if self._inner is not None else []
        return [self._comm, *self._tags.values(), *inner]

    def revoke(self) -> None:
        """Ends all calls on it, on all ranks."""
        for comm in self._comms():
            self._job.revoke(comm)

    def shutdown(self) -> None:
        """Ends the group. What is still under way on it ends with it, or with the job."""
        refuse_in_handler("destroy_process_group() was called")
        if self._left:
            return
        self._left = True
        if self._inner is not None:
            self._inner._left = True
        for comm in self._comms():
            if not self._job.closed and comm != self._job.world:
                lib.halay_comm_free(comm)  # HALAY_ESTATE: calls are under way; the job frees it
        _job.leave(self._job)

    def abort(self) -> None:
        self.shutdown()

    # ---------------------------------------------------------------- one call

    def _placed(self, name: str) -> HalayProcessGroup:
        """The group that makes a call. A callback's calls come in the order of the callbacks, and
        all but a send or receive on a communicator that the program's other calls do not use."""
        turn = here.turn
        if turn is None or self._is_inner or name in STARTS_NOTHING:
            return self
        self._usable()
        turn.order.wait(turn, self._comm)
        if name in BETWEEN_TWO and (self._inner is None or self._inner._bundle is None):
            return self
        if self._inner is None:
            with self._job.use(self._comm):
                comm = self._job.group(self._comm, list(range(self.size())), "callbacks")
            self._inner = HalayProcessGroup(self._store, self._job, comm, None)
            self._inner._is_inner = True
            self._inner._limit = self._limit
            self._inner._names = self._names
        return self._inner

    def _call(
        self,
        start: Callable[[Any], int],
        results: Tensors,
        keep: object,
        finish: Finish = None,
        block: bool = False,
        comm: Any = None,
    ) -> HalayWork:
        """start(request) makes the call, on the group's communicator or on `comm`. block: nobody
        will want to do anything meanwhile."""
        devices = devices_of(results, keep)
        for device in devices:
            self._order(device)
        if finish is not None and getattr(getattr(finish, "__self__", None), "direct", False):
            finish = None  # there is nothing to copy, and so nothing to wait for
        if self._bundle is not None:
            self._bundle.devices |= devices
            self._bundle.stream = self._stream
            self._starts.append(start)
            self._bundle.hold(results, keep, finish)
            return self._bundle
        comm = comm or self._comm
        work = HalayWork(self._job, comm)
        work.devices, work.stream = devices, self._stream if devices else None
        work.request = self._start(start, comm)
        work.hold(results, keep, finish)
        if block:
            with self._job.use(comm):
                work.complete(lib.halay_request_wait(work.request))
                interrupted()
            work.wait()
        else:
            self._job.watch(work)
        return work

    def _order(self, device: torch.device) -> None:
        """Later calls wait for what the program's current stream has to do now."""
        current = _tensors.current(device)
        if self._stream is None:
            self._stream = _tensors.make_stream(device)
        _tensors.follow(self._stream, current)
        if not self._behind and not self._get_behind():
            _tensors.synchronize(current)

    def _get_behind(self) -> bool:
        """Puts the communicator behind the stream. Not while calls in the host's memory are under
        way on it; the next call in a GPU's tries again."""
        with self._job.lock:
            busy = any(work.comm == self._comm for work in self._job.pending.values())
        if self._bundle is not None or busy:
            return False
        stream = _tensors.c_stream(self._stream)
        self._behind = lib.halay_comm_stream(self._comm, stream) == 0
        return self._behind

    def _start(self, start: Callable[[Any], int], comm: Any = None) -> Any:
        self._usable()
        request = ffi.new("halay_request_t **")
        comm = comm or self._comm
        with self._job.use(comm):
            interrupted()  # before it is posted: else its request would be lost
            code = start(request)
            if code != 0:
                raise self._job.error(code, comm)
        return request[0]

    def _usable(self) -> None:
        self._job.usable()
        if self._left:
            raise self._job.error(lib.HALAY_ESTATE)
        if self._comm != self._job.world and self._job.shrinks():
            self.revoke()
            raise self._job.error(lib.HALAY_EREVOKED, self._comm)

    # ---------------------------------------------------------------- several calls as one

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._usable()
        if device is not None and device.type == "cuda" and not self._behind:
            self._order(device)
        self._bundle, self._starts = HalayWork(self._job, self._comm), []

    def _end_coalescing(self, device: object = None) -> HalayWork:
        (work, self._bundle), (starts, self._starts) = (self._bundle, None), (self._starts, [])
        if work is None:
            raise RuntimeError("halay: _end_coalescing() without _start_coalescing()")
        while len(starts) > MOST_TOGETHER:
            first, starts = starts[:MOST_TOGETHER], starts[MOST_TOGETHER:]
            failed = self._wait_for_some(first, work)
            if failed is not None:  # so it did on all ranks, and none starts the others
                work.fail(failed)
                return work
        self._group(starts, work)
        return work

    def _wait_for_some(
        self, starts: list[Callable[[Any], int]], work: HalayWork
    ) -> HalayError | None:
        """Makes one group of the first calls of a work that are too many for one; its error."""
        part = HalayWork(self._job, self._comm)
        part.devices = work.devices
        part.hold([], work.kept(), None)
        self._group(starts, part)
        try:
            part.wait()
        except HalayError as error:
            return error
        return None

    def _group(self, starts: list[Callable[[Any], int]], work: HalayWork) -> None:
        self._job.must(lib.halay_group_begin(self._comm), self._comm)
        try:
            for start in starts:
                self._start(start)
        finally:
            work.request = self._start(lambda request: lib.halay_group_end(self._comm, request))
            self._job.watch(work)

    def _coalesced(self, tensors: Tensors, calls: Sequence[Callable[[], object]]) -> HalayWork:
        if self._bundle is not None:
            for call in calls:
                call()
            return self._bundle
        self._start_coalescing(next(iter(devices_of(list(tensors))), None))
        try:
            for call in calls:
                call()
        except BaseException:  # nothing is sent
            self._bundle, self._starts = None, []
            raise
        return self._end_coalescing()

    # ---------------------------------------------------------------- reductions

    def allreduce(self, tensors: Tensors, opts: Any = None) -> HalayWork:
        if len(tensors) > 1:
            return self.allreduce_coalesced(tensors, opts)
        opts = opts or c10d.AllreduceOptions()
        if getattr(tensors[0], "layout", None) == torch.sparse_coo:
            return self._sparse(tensors, opts.reduceOp)
        target = Target(_one(tensors, "all_reduce"), "all_reduce", read=True)
        data = target.buffer
        kind, op = type_of(data, "all_reduce"), op_of(opts.reduceOp, data, "all_reduce")
        scale(data, opts.reduceOp)
        into, count = address(data), data.numel()
        return self._call(
            lambda r: lib.halay_iallreduce(IN_PLACE, into, count, kind, op, self._comm, r),
            tensors,
            target,
            target.finish,
            not opts.asyncOp,
        )

    def _sparse(self, tensors: Tensors, op: Any) -> HalayWork:
        """It is done when this returns."""
        if getattr(op, "op", op) != c10d.ReduceOp.SUM:
            raise ValueError(f"halay all_reduce: of sparse tensors there is a sum only, not {op}")
        all_reduce_sparse(self, tensors[0])
        return HalayWork.done(self._job, self._comm, tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> HalayWork:
        single = c10d.AllreduceOptions()
        if opts is not None:
            single.reduceOp = opts.reduceOp
        return self._coalesced(tensors, [partial(self.allreduce, [t], single) for t in tensors])

    def reduce(self, tensors: Tensors, opts: Any = None) -> HalayWork:
        opts = opts or c10d.ReduceOptions()
        tensor = writable(_one(tensors, "reduce")[0], "reduce")
        root, here = opts.rootRank, opts.rootRank == self.rank()
        target = Target([tensor], "reduce", read=True) if here else None
        data = target.buffer if target else source(tensor, "reduce")
        kind, op = type_of(data, "reduce"), op_of(opts.reduceOp, data, "reduce")
        if here:
            scale(data, opts.reduceOp)
        else:
            data = scaled(data, opts.reduceOp)
        at, count = address(data), data.numel()
        into, out = (IN_PLACE, at) if here else (at, ffi.NULL)
        return self._call(
            lambda r: lib.halay_ireduce(into, out, count, kind, op, root, self._comm, r),
            tensors,
            (target, data),
            target.finish if target else None,
            not opts.asyncOp,
        )

    def reduce_scatter(self, outputs: Tensors, inputs: Any, opts: Any = None) -> HalayWork:
        opts = opts or c10d.ReduceScatterOptions()
        blocks = _lists(inputs, self.size(), "reduce_scatter")
        return self._scattered(_one(outputs, "reduce_scatter")[0], blocks, opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> HalayWork:
        opts = opts or c10d.ReduceScatterOptions()
        if input.numel() != output.numel() * self.size():
            raise ValueError(
                f"halay reduce_scatter_tensor: an input of {input.numel()} elements for "
                f"{self.size()} outputs of {output.numel()}"
            )
        return self._scattered(output, None, opts, input)

    def _scattered(
        self,
        output: torch.Tensor,
        blocks: Tensors | None,
        opts: Any,
        whole: torch.Tensor | None = None,
    ) -> HalayWork:
        call = "reduce_scatter"
        data = flat(blocks, call) if blocks is not None else source(_is(whole), call)
        counts = [t.numel() for t in blocks] if blocks is not None else [output.numel()]
        if blocks is not None and counts[self.rank()] != output.numel():
            raise ValueError(
                f"halay {call}: input {self.rank()} has {counts[self.rank()]} elements, the "
                f"output {output.numel()}"
            )
        kind, op = type_of(data, call), op_of(opts.reduceOp, data, call)
        data = scaled(data, opts.reduceOp)
        target = Target([output], call, apart=data)  # the smaller of the two is what is copied
        same(data, target.buffer, call)
        src, dst, comm = address(data), address(target.buffer), self._comm
        if len(set(counts)) == 1:

            def start(r: Any) -> int:
                code = lib.halay_ireduce_scatter(src, dst, counts[0], kind, op, comm, r)
                return int(code)
        else:
            of_all = sizes(counts)

            def start(r: Any) -> int:
                return int(lib.halay_ireduce_scatterv(src, dst, of_all, kind, op, comm, r))

        return self._call(start, [output], (data, target), target.finish, not opts.asyncOp)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> HalayWork:
        return self._coalesced(
            outputs,
            [partial(self.reduce_scatter_single, o, i, opts) for o, i in zip(outputs, inputs)],
        )

    # ---------------------------------------------------------------- moving

    def broadcast(self, tensors: Tensors, opts: Any = None) -> HalayWork:
        opts = opts or c10d.BroadcastOptions()
        root = opts.rootRank
        target = Target(_one(tensors, "broadcast"), "broadcast", read=root == self.rank())
        data = target.buffer
        kind, at, count = moved_type(data, "broadcast"), address(data), data.numel()
        return self._call(
            lambda r: lib.halay_ibroadcast(at, count, kind, root, self._comm, r),
            tensors,
            target,
            target.finish,
            not opts.asyncOp,
        )

    def allgather(self, outputs: Any, inputs: Tensors, opts: Any = None) -> HalayWork:
        opts = opts or c10d.AllgatherOptions()
        blocks = _lists(outputs, self.size(), "all_gather")
        data = source(_one(inputs, "all_gather")[0], "all_gather")
        counts = [t.numel() for t in blocks]
        if counts[self.rank()] != data.numel():
            raise ValueError(
                f"halay all_gather: output {self.rank()} has {counts[self.rank()]} elements, the "
                f"input {data.numel()}"
            )
        return self._gathered(blocks, data, counts, opts)

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> HalayWork:
        opts = opts or c10d.AllgatherOptions()
        data = source(input, "all_gather_into_tensor")
        if output.numel() != data.numel() * self.size():
            raise ValueError(
                f"halay all_gather_into_tensor: an output of {output.numel()} elements for "
                f"{self.size()} inputs of {data.numel()}"
            )
        return self._gathered([output], data, [data.numel()], opts)

    def _gathered(
        self, outputs: Tensors, data: torch.Tensor, counts: list[int], opts: Any
    ) -> HalayWork:
        call = "all_gather"
        target = Target(outputs, call)
        same(data, target.buffer, call)
        kind, comm = moved_type(data, call), self._comm
        # All ranks have to call in place, or none: so each block is brought to its place first.
        before = self.rank() * counts[0] if len(counts) == 1 else sum(counts[: self.rank()])
        put(data, target.buffer.view(-1).narrow(0, before, data.numel()))
        dst = address(target.buffer)
        if len(set(counts)) == 1:

            def start(r: Any) -> int:
                return int(lib.halay_iallgather(IN_PLACE, dst, counts[0], kind, comm, r))
        else:
            of_all = sizes(counts)

            def start(r: Any) -> int:
                return int(lib.halay_iallgatherv(IN_PLACE, dst, of_all, ffi.NULL, kind, comm, r))

        return self._call(start, outputs, target, target.finish, not opts.asyncOp)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> HalayWork:
        return self._coalesced(
            outputs, [partial(self.all_gather_single, o, i, opts) for o, i in zip(outputs, inputs)]
        )

    def allgather_coalesced(self, outputs: Any, inputs: Tensors, opts: Any = None) -> HalayWork:
        """outputs: for each rank a list like that of its inputs."""
        whole = any(isinstance(row, torch.Tensor) for row in outputs)
        if whole or len(outputs) != self.size() or {len(row) for row in outputs} != {len(inputs)}:
            raise ValueError(
                f"halay all_gather_coalesced: needs a list of {len(inputs)} tensors, as many as go "
                f"in, for each of {self.size()} ranks"
            )
        of_each = [list(column) for column in zip(*outputs)]
        calls = [partial(self.allgather, [o], [i]) for o, i in zip(of_each, inputs)]
        return self._coalesced(inputs, calls)

    def gather(self, outputs: Any, inputs: Tensors, opts: Any = None) -> HalayWork:
        opts = opts or c10d.GatherOptions()
        data = source(_one(inputs, "gather")[0], "gather")
        root, here = opts.rootRank, opts.rootRank == self.rank()
        blocks = _lists(outputs, self.size(), "gather", data) if here else []
        target = Target(blocks, "gather") if here else None
        data = apart(data, target)
        kind, count, src = moved_type(data, "gather"), data.numel(), address(data)
        dst = address(target.buffer) if target else ffi.NULL
        return self._call(
            lambda r: lib.halay_igather(src, dst, count, kind, root, self._comm, r),
            blocks,
            (data, target),
            target.finish if target else None,
            not opts.asyncOp,
        )

    def scatter(self, outputs: Tensors, inputs: Any, opts: Any = None) -> HalayWork:
        opts = opts or c10d.ScatterOptions()
        output = _one(outputs, "scatter")[0]
        root, here = opts.rootRank, opts.rootRank == self.rank()
        data = flat(_lists(inputs, self.size(), "scatter", output), "scatter") if here else None
        target = Target([output], "scatter")
        kind, count = moved_type(target.buffer, "scatter"), output.numel()
        src, dst = address(data), address(target.buffer)
        return self._call(
            lambda r: lib.halay_iscatter(src, dst, count, kind, root, self._comm, r),
            outputs,
            (data, target),
            target.finish,
            not opts.asyncOp,
        )

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> HalayWork:
        opts = opts or c10d.AllToAllOptions()
        call, size = "all_to_all", self.size()
        data, target = flat(_lists([inputs], size, call), call), Target(outputs, call)
        _lists([outputs], size, call)
        sent, received = [t.numel() for t in inputs], [t.numel() for t in outputs]
        return self._exchanged(data, sent, target, received, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> HalayWork:
        opts = opts or c10d.AllToAllOptions()
        data, target = source(input, "all_to_all"), Target([output], "all_to_all")
        sent = self._splits(input, input_split_sizes, "input")
        received = self._splits(output, output_split_sizes, "output")
        return self._exchanged(data, sent, target, received, opts)

    def _splits(self, tensor: torch.Tensor, rows: Sequence[int], which: str) -> list[int]:
        """Elements for each rank, of rows of the first dimension."""
        first = tensor.shape[0] if tensor.dim() else 1
        if not rows:
            if first % self.size():
                raise ValueError(
                    f"halay all_to_all_single: the {which} has {first} rows, which "
                    f"{self.size()} ranks cannot share evenly; give split sizes"
                )
            rows = [first // self.size()] * self.size()
        if len(rows) != self.size() or sum(rows) != first:
            raise ValueError(
                f"halay all_to_all_single: {which} split sizes {list(rows)} for {first} rows and "
                f"{self.size()} ranks"
            )
        width = tensor.numel() // first if first else 0
        return [int(n) * width for n in rows]

    def _exchanged(
        self, data: torch.Tensor, sent: list[int], target: Target, received: list[int], opts: Any
    ) -> HalayWork:
        same(data, target.buffer, "all_to_all")
        data = apart(data, target)
        kind, src, dst = moved_type(data, "all_to_all"), address(data), address(target.buffer)
        out, into, none, comm = sizes(sent), sizes(received), ffi.NULL, self._comm
        return self._call(
            lambda r: lib.halay_ialltoallv(src, out, none, dst, into, none, kind, comm, r),
            target.tensors,
            (data, target),
            target.finish,
            not opts.asyncOp,
        )

    def barrier(self, opts: Any = None) -> HalayWork:
        block = opts is not None and not opts.asyncOp
        return self._call(lambda r: lib.halay_ibarrier(self._comm, r), [], None, None, block)

    def monitored_barrier(
        self, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """A barrier within this time, over the group's store, that names the ranks that do not
        come: rank 0 the first one of them, or with wait_all_ranks all. The group stays as it is."""
        wrong = self._monitor.barrier(self._limit if timeout is None else timeout, wait_all_ranks)
        if wrong:
            code = lib.HALAY_ETIMEOUT
            raise HalayTimeout(code, "HALAY_ETIMEOUT", wrong, self._job.rank, self._job.host)

    # ---------------------------------------------------------------- between two ranks

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> HalayWork:
        tensor = _one(tensors, "send")[0]
        if peer == self.rank():
            self._alone("send")
            return self._oneself.send(tensor, tag)
        data = source(tensor, "send")
        kind, at, count = moved_type(data, "send"), address(data), data.numel()
        comm, to = self._between("send", peer, tag)
        return self._call(
            lambda r: lib.halay_isend(at, count, kind, to, comm, r), tensors, data, comm=comm
        )

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> HalayWork:
        if peer == self.rank():
            self._alone("recv")
            tensor = _one(tensors, "recv")[0]
            work = self._oneself.recv(tensor, tag, self._limit.total_seconds())
            work.source = peer
            return work
        target = Target(_one(tensors, "recv"), "recv")
        data = target.buffer
        kind, at, count = moved_type(data, "recv"), address(data), data.numel()
        comm, of = self._between("recv", peer, tag)
        work = self._call(
            lambda r: lib.halay_irecv(at, count, kind, of, comm, r),
            tensors,
            target,
            target.finish,
            comm=comm,
        )
        if self._bundle is None:  # else it stands for several calls
            work.source = peer
        return work

    def _alone(self, call: str) -> None:
        """A message to oneself is not the library's, so it can be no part of a group of calls."""
        self._usable()
        if self._bundle is not None:
            raise ValueError(
                f"halay {call}: a rank's message to itself among coalesced calls: make it outside"
            )

    def _between(self, call: str, peer: int, tag: int) -> tuple[Any, int]:
        """Where these two ranks send with this tag, and the peer's rank there: sends and receives
        meet in the order of the calls, so each tag but 0 has a communicator of its own."""
        if not 0 <= peer < self.size():
            raise ValueError(
                f"halay {call}: rank {peer} is not a rank of the {self.size()} of the group"
            )
        if tag == 0:
            return self._comm, peer
        comm = self._tags.get((peer, tag))
        if comm is None:
            if len(self._tags) == MOST_TAGS:
                raise ValueError(
                    f"halay send, recv: tag {tag} with rank {peer}: this group has used "
                    f"{MOST_TAGS} pairs of rank and tag already; use tags again, or none"
                )
            two = sorted((self.rank(), peer))
            comm = self._tags[peer, tag] = self._job.group(self._comm, two, f"tag {tag}")
        return comm, int(peer > self.rank())

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> HalayWork:
        raise NotImplementedError("halay recv: the sender has to be named (src=...)")

    # The names that these had before torch 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _outermost(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """What torch calls, in any of its overloads: outside of its graphs. A profiler sees it."""
    form = FORMS.get(method.__name__)

    @_tensors.outside_graph
    def outside(group: HalayProcessGroup, *args: Any, **options: Any) -> Any:
        if form is not None:
            return method(group._placed(name), *form.take(name, args, options))
        return method(group._placed(name), *args, **options)

    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        if not torch._C._autograd._profiler_enabled():
            return outside(*args, **options)
        with torch.profiler.record_function(f"halay:{name}"):
            return outside(*args, **options)

    return call


for _name, _method in list(vars(HalayProcessGroup).items()):
    if callable(_method) and hasattr(_Base, _name) and not _name.startswith("__"):
        setattr(HalayProcessGroup, _name, _outermost(_name, _method))


def _one(tensors: Tensors, call: str) -> Tensors:
    if len(tensors) != 1:
        raise ValueError(f"halay {call}: one tensor a rank, not {len(tensors)}")
    return [check(tensors[0], call)]


def _is(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor


def _lists(lists: Any, size: int, call: str, like: torch.Tensor | None = None) -> Tensors:
    """The one list in it, with a tensor for each rank: as large as `like`, if that is given."""
    if len(lists) != 1 or isinstance(lists[0], torch.Tensor) or len(lists[0]) != size:
        raise ValueError(f"halay {call}: needs one list of {size} tensors, one for each rank")
    found = [check(tensor, call) for tensor in lists[0]]
    for tensor in found:
        if like is not None and (tensor.numel(), tensor.dtype) != (like.numel(), like.dtype):
            raise ValueError(
                f"halay {call}: tensors of one size and type are needed, not "
                f"{tuple(tensor.shape)} {tensor.dtype} and {tuple(like.shape)} {like.dtype}"
            )
    return found
