# SPDX-License-Identifier: Apache-2.0
"""Futures of calls, and the order of the calls that their callbacks make.

Each callback gets a ticket when it is attached: the next number of the job or, in a callback, the
next below that callback's own ticket. So tickets have the order of the program, which is the same
on all ranks, while the order in which futures are done is not. Callbacks run at the same time, but
the calls that they make begin in the order of the tickets: a callback's first call waits until all
callbacks before it are over. A callback that waits for the future of a later one lets all callbacks
up to that one go before its own next call.

torch.futures.collect_all() would give a future of C++'s, whose callbacks cannot be seen. So where
one of its futures is ours, this module's collect_all() takes its place.
"""

from __future__ import annotations

import bisect
import functools
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

import torch

from .._core import ffi, lib
from ..errors import HalayTimeout

if TYPE_CHECKING:
    from ._job import Job

# torch's Future() holds Python objects; one with a list for C++ comes from its interpreter only.
LIST_WHEN_DONE = """
def wait(gate: Future[int], tensors: List[Tensor]) -> List[Tensor]:
    torch.jit.wait(gate)
    return tensors
def start(gate: Future[int], tensors: List[Tensor]) -> Future[List[Tensor]]:
    return torch.jit.fork(wait, gate, tensors)
"""

GRACE_S = 2.0  # by which a call may end after its deadline

Callback = Callable[[Any], Any]


class Turn:
    """The place of one callback in the order of those of a job."""

    __slots__ = ("children", "lent", "order", "ticket")

    def __init__(self, order: Order, ticket: tuple[int, ...]) -> None:
        self.order, self.ticket = order, ticket
        self.children = 0  # callbacks that were attached in it
        self.lent: tuple[int, ...] = ()  # the last ticket that goes before its own next call

    def __lt__(self, other: Turn) -> bool:
        return self.ticket < other.ticket


class _Here(threading.local):
    turn: Turn | None = None  # of the callback that this thread runs


here = _Here()


class Order:
    """The callbacks of a job that are not over, by ticket."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._changed = threading.Condition(job.inner)  # the job's lock
        self._open: list[Turn] = []
        self._last = 0
        self._moves = 0

    def enter(self) -> Turn:
        """A callback is attached."""
        outer = here.turn
        with self._changed:
            if outer is None or outer.order is not self:
                self._last += 1
                turn = Turn(self, (self._last,))
            else:
                outer.children += 1
                turn = Turn(self, (*outer.ticket, outer.children))
            bisect.insort(self._open, turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """A callback is over."""
        with self._changed:
            del self._open[bisect.bisect_left(self._open, turn)]
            self._move()

    def lend(self, turn: Turn, later: Turn) -> None:
        """A callback waits for what a later one returns, and so does who waits for it."""
        with self._changed:
            reach = later.ticket
            for other in self._open:
                if turn < other and other.ticket <= reach:
                    reach = max(reach, other.lent)
            for other in self._open:
                if other is turn or (other < turn and other.lent >= turn.ticket):
                    other.lent = max(other.lent, reach)
            self._move()

    def _move(self) -> None:
        self._moves += 1
        self._changed.notify_all()
        self._job.call_threads()

    def may_call(self, turn: Turn) -> bool:
        """Whether it is this callback that may make calls now. Under the job's lock."""
        for place, other in enumerate(self._open):
            if other is turn:
                after = self._open[place + 1 : place + 2]
                return not after or after[0].ticket > turn.lent
            if other.lent < turn.ticket:
                return False
        return True

    def wait(self, turn: Turn, comm: Any) -> None:
        """Until it may make calls. Callbacks that do not end are told by the deadline."""
        limit = ffi.new("uint64_t *")
        with self._changed:
            while not self.may_call(turn):
                self._job.usable()
                if limit[0] == 0:
                    self._job.must(lib.halay_comm_deadline(comm, limit), comm)
                seen = self._moves
                self._changed.wait(min(limit[0] / 1e9 + GRACE_S, threading.TIMEOUT_MAX))
                if self._moves == seen and not self._job.closed:
                    raise HalayTimeout(
                        lib.HALAY_ETIMEOUT,
                        "HALAY_ETIMEOUT",
                        f"a callback of a future has waited {limit[0] / 1e9:g} s to make a call: a "
                        "callback that was attached before it has not ended. Calls in callbacks "
                        "are made in the order in which the callbacks were attached: no callback "
                        "may wait for what a later one does, except by that one's future",
                        self._job.rank,
                        self._job.host,
                    )
            self._moves += 1  # for those who wait after it

    def close(self) -> None:
        """Under the job's lock: who waits learns that the job has ended."""
        self._moves += 1
        self._changed.notify_all()


class Failed:
    """What a future of a failed call holds. C++ code that reads it raises the error, or says it."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __str__(self) -> str:
        return str(self._error)

    def __getitem__(self, _: object) -> Any:
        raise self._error

    def __reduce_ex__(self, _: object) -> Any:
        raise self._error


class HalayFuture(torch.futures.Future[Any]):
    """A future whose callbacks run in threads of the job, and make calls in their order.

    A callback of a future that is done already does not run in the thread that attaches it, either:
    it may wait for what that one does next. Under torchft it does (Job.callbacks_at_once); but not
    in another callback, whose next call would come after it on this rank alone.
    """

    def __init__(self, job: Job, devices: Sequence[torch.device], turn: Turn | None = None) -> None:
        super().__init__(devices=list(devices))
        self._job, self._devices, self._turn = job, devices, turn

    def then(self, callback: Callback) -> HalayFuture:
        turn = self._job.order.enter()
        child = HalayFuture(self._job, self._devices, turn)
        self._attach(Task(self, callback, child, turn))
        return child

    def add_done_callback(self, callback: Callback) -> None:
        self._attach(Task(self, callback, None, self._job.order.enter()))

    def _attach(self, task: Task) -> None:
        if self._job.callbacks_at_once and here.turn is None and self.done():
            task.run()
        else:
            super().add_done_callback(lambda _: self._job.ready(task))

    def run(self, callback: Callback) -> None:
        """Calls it here and now, on streams behind which the value is: the future is done."""
        super().add_done_callback(callback)

    def wait(self) -> Any:
        mine, its = here.turn, self._turn
        if mine is not None and its is not None and mine < its and not self.done():
            mine.order.lend(mine, its)
        return super().wait()

    def as_list(self, tensors: Sequence[torch.Tensor]) -> torch.futures.Future[Any]:
        """A future of C++'s that is done when this is: with these tensors, or with its error."""
        # Not then(): the wait is no callback of the program, and has no place among these.
        gate = super().then(lambda _: self.value() and None)
        found: torch.futures.Future[Any] = _list_when_done()(gate, tensors)
        return found

    def settle(self, value: object, error: BaseException | None) -> None:
        """The result, or the error."""
        if error is not None:
            self._set_unwrap_func(Failed(error).__getitem__)
            value = Failed(error)
        super().set_result(value)


_collect_all_of_torch: Any = torch._C._collect_all


def collect_all(futures: Sequence[torch.futures.Future[Any]]) -> Any:
    """The future of the list of them, done when all are, with the error of the first that failed.

    A callback that waits for it waits for the last of the callbacks that it collects."""
    ours = [future for future in futures if isinstance(future, HalayFuture)]
    done = _collect_all_of_torch(futures)
    if not ours:
        return done
    devices = {device for future in ours for device in future._devices}
    turn = max((future._turn for future in ours if future._turn is not None), default=None)
    found, of_all = HalayFuture(ours[0]._job, sorted(devices, key=str), turn), list(futures)

    def settle(_: object) -> None:
        error: BaseException | None = None
        try:
            done.value()
            for future in ours:
                future.value()
        except BaseException as caught:
            error = caught
        found.settle(of_all, error)

    done.add_done_callback(settle)
    return found


torch._C._collect_all = collect_all  # type: ignore[assignment]  # which torch.futures calls


@functools.cache
def _list_when_done() -> Any:
    unit: Any = torch.jit.CompilationUnit
    return unit(LIST_WHEN_DONE).start


def is_asked_by_engine() -> bool:
    """Whether C++ code, in a backward pass, has called the function that calls this one."""
    frame = sys._getframe(1).f_back
    return frame is None or frame.f_code.co_name == "_engine_run_backward"


class Task:
    """A callback of a future, and the future of what it returns."""

    __slots__ = ("_callback", "_child", "_parent", "turn")

    def __init__(
        self, parent: HalayFuture, callback: Callback, child: HalayFuture | None, turn: Turn
    ) -> None:
        self._parent, self._callback, self._child, self.turn = parent, callback, child, turn

    def __lt__(self, other: Task) -> bool:
        return self.turn < other.turn

    def run(self) -> None:
        self._parent.run(self._run)

    def _run(self, _: object) -> None:
        value, error = None, None
        outer, here.turn = here.turn, self.turn
        try:
            value = self._callback(self._parent)
        except BaseException as caught:
            error = caught
        finally:
            here.turn = outer
            self.turn.order.leave(self.turn)
        if self._child is not None:
            self._child.settle(value, error and _as_torch_says(error))
        elif error is not None:
            raise error  # torch logs it


def _as_torch_says(error: BaseException) -> RuntimeError:
    if isinstance(error, RuntimeError):
        return error
    told = RuntimeError(
        f"Got the following error when running the callback: {type(error).__name__}: {error}"
    )
    told.__cause__ = error
    return told
