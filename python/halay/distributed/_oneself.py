# SPDX-License-Identifier: Apache-2.0
"""Messages of a rank to itself (batch_isend_irecv makes them): they stay in the process.

A send keeps a copy, and is done. A receive takes the first message with its tag, or waits for it.
"""

from __future__ import annotations

import collections
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from .. import _tensors
from .._core import lib
from ._tensors import Target, put, source
from ._work import HalayWork

if TYPE_CHECKING:
    from ._job import Job

MOST_KEPT = 1024  # messages of one tag that nobody has received


class Oneself:
    """The calls of a group of one rank."""

    def __init__(self, job: Job, comm: Any) -> None:
        self._job, self._comm = job, comm
        self._lock = threading.Lock()
        self._sent: dict[int, collections.deque[torch.Tensor]] = {}
        self._wanted: dict[int, collections.deque[tuple[HalayWork, Target]]] = {}

    def send(self, tensor: torch.Tensor, tag: int) -> HalayWork:
        data = source(tensor, "send").clone()
        if data.is_cuda:
            _tensors.synchronize(_tensors.current(data.device))
        with self._lock:
            wanted = self._wanted.get(tag)
            if not wanted:
                kept = self._sent.setdefault(tag, collections.deque())
                if len(kept) == MOST_KEPT:
                    raise ValueError(
                        f"halay send: {MOST_KEPT} messages of rank {self._job.rank} to itself with "
                        f"tag {tag} have not been received: receive them first"
                    )
                kept.append(data)
                return HalayWork.done(self._job, self._comm, [tensor])
            work, target = wanted.popleft()
            if not wanted:
                del self._wanted[tag]
        self._deliver(data, work, target)
        return HalayWork.done(self._job, self._comm, [tensor])

    def recv(self, tensor: torch.Tensor, tag: int, limit_s: float) -> HalayWork:
        target = Target([tensor], "recv")
        work = HalayWork(self._job, self._comm)
        work.results, work.ends = [tensor], time.monotonic() + limit_s
        with self._lock:
            sent = self._sent.get(tag)
            if not sent:
                self._wanted.setdefault(tag, collections.deque()).append((work, target))
                return work
            data = sent.popleft()
            if not sent:
                del self._sent[tag]
        self._deliver(data, work, target)
        return work

    def _deliver(self, data: torch.Tensor, work: HalayWork, target: Target) -> None:
        def finish() -> None:
            into = target.tensors[0]
            if (data.dtype, data.numel()) != (into.dtype, into.numel()):
                raise ValueError(
                    f"halay recv: rank {self._job.rank} has sent itself {data.numel()} elements of "
                    f"{data.dtype}, and receives {into.numel()} of {into.dtype}"
                )
            put(data, into.detach())

        work.hold([], None, finish)
        work.complete(lib.HALAY_OK)
