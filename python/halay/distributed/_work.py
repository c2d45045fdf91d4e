# SPDX-License-Identifier: Apache-2.0
"""One operation under way: c10d's Work, with a future for those who wait in C++ (DDP's reducer)."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist

from .. import _tensors
from .._core import interrupted, lib
from ..errors import HalayTimeout
from ._callbacks import HalayFuture, is_asked_by_engine
from ._job import Job
from ._tensors import cuda_tensors

SLICE_NS = 20_000_000
MOST_LEFT_BYTES = 16384  # of the results of a work that Python has dropped


def make_future(job: Job, devices: set[torch.device]) -> HalayFuture:
    """What waits for it uses the values on streams of these devices."""
    return HalayFuture(job, sorted(devices, key=str))


class _Last(threading.local):
    work: HalayWork | None = None  # that this thread has waited for


_last = _Last()


class HalayWork(dist.Work):
    """Completes once: by the caller that waits for it, or by the job's thread.

    C++ code can keep a work that Python has dropped (DDP does in join()), but not its Python half,
    without which torch's wait() never returns. So a work that nobody has waited for, and whose
    future nobody has, stays for a while: the job keeps the last MOST_LEFT of them. C++ asks for the
    future right after it has waited, so each thread also keeps the last one that it waited for.
    """

    _owed = False  # nobody has waited for it, or has its future
    ends: float | None = None  # of a message to oneself, on which the library has no deadline
    source: int | None = None  # of a receive: who sends, in the group

    def __init__(self, job: Job, comm: Any) -> None:
        super().__init__()
        self.job = job
        self.comm = comm
        self.request: Any = None
        self.results: list[torch.Tensor] = []
        self.devices: set[torch.device] = set()
        self.stream: Any = None  # in which results are copied at the end
        self._copied: Any = None  # an event: they have been
        self._keep: list[object] = []
        self._finish: list[Callable[[], None]] = []
        self._touched: list[torch.Tensor] = []  # by what is done then
        self._error: BaseException | None = None
        self._done = False
        self._future: HalayFuture | None = None
        self._owed = True

    def __del__(self) -> None:
        if self._owed and not self.job.closed:
            if not self._is_small():
                self.results = []
            self.job.left.append(self)

    def _is_small(self) -> bool:
        if any(tensor.layout != torch.strided for tensor in self.results):
            return False
        return sum(t.untyped_storage().nbytes() for t in self.results) <= MOST_LEFT_BYTES

    @classmethod
    def done(cls, job: Job, comm: Any, results: Sequence[torch.Tensor]) -> HalayWork:
        """One whose call is over."""
        work = cls(job, comm)
        work.results, work._done = list(results), True
        return work

    def hold(
        self, results: Sequence[torch.Tensor], keep: object, finish: Callable[[], None] | None
    ) -> None:
        """What stays alive until the end, and what is done then, before anyone is told."""
        self.results += results
        self._keep.append(keep)
        if finish is not None:
            self._finish.append(finish)
            self._touched += cuda_tensors(results, keep)

    def kept(self) -> object:
        """What holds the same, also after this one has completed."""
        return self.results, self._keep

    def fail(self, error: BaseException) -> None:
        """One whose last calls are not made, and which nobody has seen yet."""
        self._error, self._done = error, True
        self._keep, self._finish, self._touched = [], [], []

    def complete(self, code: int) -> None:
        """By whoever has it in hand. The library no longer knows the request."""
        if self.finish(code):
            self.tell()

    def finish(self, code: int) -> bool:
        """complete() except for its future. Whether there is one, which is to be told then. What is
        raised here is this work's error, and nobody else's."""
        failed: BaseException | None = None
        try:
            if code == 0:
                self._copy()
            else:
                failed = self.job.error(code, self.comm)
        except BaseException as caught:
            failed = caught
        with self.job.lock:
            self._error = failed
            self._done = True
            future = self._future
        self.request = None
        self._keep, self._finish, self._touched = [], [], []
        return future is not None

    def raise_interrupt(self) -> None:
        """Ctrl-C in finish() is also for the program, which may not ask for this work."""
        if self._error is not None and not isinstance(self._error, Exception):
            raise self._error

    def _copy(self) -> None:
        """Results to where they belong: in the stream, which those who wait have theirs wait for.
        What was not copied is there for every stream."""
        with _tensors.on(self.stream):
            for finish in self._finish:
                finish()
        if self._touched:
            for tensor in self._touched:
                _tensors.use_on(tensor, self.stream)
            self._copied = self.stream.record_event()

    def tell(self) -> None:
        """The future."""
        assert self._future is not None
        with _tensors.on(self.stream):  # behind which its values are
            self._future.settle(self.results, self._error)

    def _arrive(self) -> bool:
        """At the end of a wait."""
        if self._copied is not None:
            for device in self.devices:
                _tensors.current(device).wait_event(self._copied)
        return self._outcome()

    def _outcome(self) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Until it is complete; raises Halay's verdict if it failed."""
        if self._owed:
            self._owed = False
            _last.work = self if self._is_small() else None
        if self._done:
            return self._arrive()
        self.job.usable()
        seconds = timeout.total_seconds()
        if seconds <= 0:
            with self.job.use(self.comm):
                if self.job.take(self):
                    self.complete(lib.halay_request_wait(self.request))
                    interrupted()
            if self._done:
                return self._arrive()
        start = time.monotonic()
        end = start + seconds if seconds > 0 else self.ends
        while not self._done:
            self.job.usable()
            if end is not None and time.monotonic() > end:
                raise HalayTimeout(
                    lib.HALAY_ETIMEOUT,
                    "HALAY_ETIMEOUT",
                    f"Work.wait: not complete after {time.monotonic() - start:.3g} s; it is still "
                    "under way",
                    self.job.rank,
                    self.job.host,
                )
            with self.job.use(self.comm):
                lib.halay_context_progress(self.job.context, SLICE_NS)
                self.job.reap()
        return self._arrive()

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._done:
            with self.job.use(self.comm):
                self.job.reap()
        return self._done and (self._copied is None or bool(self._copied.query()))

    def is_success(self) -> bool:
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self.results

    def _source_rank(self) -> int:
        return super()._source_rank() if self.source is None else self.source  # torch's own error

    source_rank = _source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the list of result tensors."""
        with self.job.lock:
            fresh = self._future is None
            if self._future is None:
                self._owed = False
                self._future = make_future(self.job, self.devices)
            future, done = self._future, self._done
        if fresh and done:  # else finish() sees the future
            self.tell()
        # DDP's built-in hook for float16 reads a list in C++.
        kinds = {tensor.dtype for tensor in self.results}
        if kinds == {torch.float16} and not self.devices and is_asked_by_engine():
            return future.as_list(self.results)
        return future
