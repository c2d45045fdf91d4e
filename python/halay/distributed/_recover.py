# SPDX-License-Identifier: Apache-2.0
"""The ranks that are left after a failure make a new default group."""

from __future__ import annotations

import datetime
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from .. import _variables
from ._group import HalayProcessGroup
from ._job import Job, join, leave
from ._start import rendezvous


def shrink(timeout: datetime.timedelta | None) -> list[int]:
    job = join()  # so that it outlives its last group
    try:
        old, before = job.rank, job.size
        _variables.withdraw(job)  # their numbers are the old ones
        _leave_groups(job)
        tried, reason = 0, ""
        while True:
            job.shrink()
            if job.size == tried:  # all see this: nobody has failed since, so it is no death
                raise RuntimeError(
                    reason or "halay: another rank could not make torch's store: see its error"
                )
            made, reason = _meet(job, old)
            if job.agree(made is not None):
                break  # else one more has failed meanwhile
            tried = job.size
        store, rank, size, left = made
        limit: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        dist.init_process_group("halay", store=store, rank=rank, world_size=size, **limit)
    finally:
        leave(job)
    return sorted(set(range(before)) - set(left))


def _leave_groups(job: Job) -> None:
    """What is under way on them ends, so that everybody comes here."""
    job.revoke(job.leaves)  # first: it tells why
    for group in list(distributed_c10d._world.pg_map):
        if isinstance(group, HalayProcessGroup):
            group.revoke()
    job.revoke(job.parent)
    if dist.is_initialized():
        dist.destroy_process_group()


def _meet(job: Job, old: int) -> tuple[Any, str]:
    """A store, rank, size, and the old ranks of all; or None, and why it has failed."""
    try:
        return (*rendezvous(), job.gather(old)), ""
    except RuntimeError as error:  # HalayError is one, and so is the store's
        job.revoke(job.parent)
        return None, str(error)
