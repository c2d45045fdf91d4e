# SPDX-License-Identifier: Apache-2.0
"""Halay as the process group of torchft, between its replica groups.

    from halay.torchft import ProcessGroupHalay
    manager = torchft.Manager(pg=ProcessGroupHalay(timeout=timedelta(seconds=30)), ...)

torchft's manager configures it anew for each quorum, with a store, a rank and a size: the ranks
meet there, and a process may be another rank of another quorum. What started the process is not
asked, so its own group may be torchrun's. A call that a lost replica group ends raises
HalayPeerLost, of which the manager is told through the work's future.
"""

from __future__ import annotations

import datetime
from typing import Any

from torch._C._distributed_c10d import Store
from torchft.process_group import ProcessGroupWrapper

from ._core import lib
from .distributed._group import HalayProcessGroup
from .distributed._job import Job
from .distributed._place import meet

__all__ = ["ProcessGroupHalay"]

_Base: Any = ProcessGroupWrapper


class ProcessGroupHalay(_Base):  # type: ignore[misc]  # torchft has no types for mypy
    """A process group that torchft can configure again.

    timeout: how long a meeting (unless HALAY_START_DEADLINE is set) and a call may take.
    """

    def __init__(self, timeout: datetime.timedelta = datetime.timedelta(seconds=60)) -> None:
        super().__init__(timeout)

    def _create_pg(self, store: Store, rank: int, world_size: int) -> HalayProcessGroup:
        store.set_timeout(self._timeout)
        place = meet(store, rank, world_size)
        nanoseconds = int(self._timeout.total_seconds() * 1e9)
        found = Job(place._replace(deadline_ns=nanoseconds))
        found.users = 1
        # torchft's _ManagedWork attaches its callbacks one after the other when the call is done,
        # and each has to be over before the next one is attached.
        found.callbacks_at_once = True
        return HalayProcessGroup(store, found, found.world, self._timeout)

    def getBackendName(self) -> str:
        return "torchft-halay"

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def abort(self, errored: bool = True) -> None:
        """Ends the calls that are under way, with HalayRevoked, here and on the others."""
        pg = self._pg
        if pg is not None and not pg._job.closed:
            for comm in pg._comms():
                lib.halay_comm_revoke(comm)
        super().abort(errored)

    def shutdown(self) -> None:
        """Ends the group."""
        if self._pg is not None:
            self._pg.shutdown()
        super().shutdown()
