# SPDX-License-Identifier: Apache-2.0
"""One operation under way: c10d's Work, with a future for those who wait in C++ (DDP's reducer)."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist

from .. import _tensors
from .._core import interrupted, lib
from ..errors import HalayError, HalayTimeout
from ._job import Job
from ._tensors import cuda_tensors

SLICE_NS = 20_000_000


def make_future(devices: set[torch.device]) -> torch.futures.Future[Any]:
    """What waits for it uses the values on streams of these devices."""
    if not devices:
        return torch.futures.Future()
    return torch.futures.Future(devices=sorted(devices, key=str))


class HalayWork(dist.Work):
    """Completes once: by the caller that waits for it, or by the job's thread."""

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
        self._error: HalayError | None = None
        self._done = False
        self._future: torch.futures.Future[Any] | None = None
        self._visible: torch.futures.Future[Any] | None = None

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

    def complete(self, code: int) -> None:
        """By whoever has it in hand. The library no longer knows the request."""
        if self.finish(code):
            self.tell()

    def finish(self, code: int) -> bool:
        """complete() but for its future. Whether there is one, which is to be told then."""
        failed = None
        if code == 0:
            self._copy()
        else:
            failed = self.job.error(code, self.comm)
        with self.job.lock:
            self._error = failed
            self._done = True
            future = self._future
        self.request = None
        self._keep, self._finish, self._touched = [], [], []
        return future is not None

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
        """The future, whose callbacks run here."""
        assert self._future is not None
        with _tensors.on(self.stream):  # behind which its values are
            self._future.set_result(self.results)

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
        end = time.monotonic() + seconds if seconds > 0 else None
        while not self._done:
            self.job.usable()
            if end is not None and time.monotonic() > end:
                raise HalayTimeout(
                    lib.HALAY_ETIMEOUT,
                    "HALAY_ETIMEOUT",
                    f"Work.wait: not complete after {seconds:g} s; it is still under way",
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

    def exception(self) -> HalayError | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self.results

    def get_future(self) -> torch.futures.Future[Any]:
        """Of the list of result tensors. The error in it is a real one in C++ too: a callback that
        raises makes one, Future.set_exception() does not."""
        with self.job.lock:
            if self._visible is not None:
                return self._visible
            future = make_future(self.devices)
            visible = future.then(self._value)
            self._future, self._visible = future, visible
            done = self._done
        if done:  # else finish() sees the future
            self.tell()
        return visible

    def _value(self, _: torch.futures.Future[Any]) -> list[torch.Tensor]:
        self._outcome()
        return self.results
