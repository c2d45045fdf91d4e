# SPDX-License-Identifier: Apache-2.0
"""The collectives, life cycle, topology and probes."""

from __future__ import annotations

import os
from typing import Any

import halay.torch as _torch
from halay import _session
from halay.horovod import identity as _identity
from halay.horovod import settings as _settings
from halay.horovod import surface as _surface

from ..common.exceptions import HorovodInternalError

_names = [*_surface.OPERATIONS, *_surface.LIFE, *_surface.TOPOLOGY, *_surface.SETS]
_members = _surface.fetch("halay.torch", _names, "horovod.torch")
_members.update(_surface.fetch("halay.horovod.probes", _surface.PROBES, "horovod.torch"))
globals().update(_members)

__all__ = [*_members, "HorovodInternalError", "init"]


@_session.at_open
def _export(session: _session.Session) -> None:
    """The ranks of an elastic job meet again without a call of init()."""
    _identity.export({name: getattr(session, name.lower()) for name in _identity.NAMES})


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job, under the HOROVOD_* settings as they are now."""
    fresh = not _torch.is_initialized()
    notes = _settings.apply() if fresh else []
    if isinstance(process_sets, str) and process_sets.lower() == "dynamic":
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        process_sets = None
    nothing = isinstance(comm, (list, tuple)) and not comm
    _torch.init(None if nothing else comm, process_sets or None)
    _settings.report(notes)


def __getattr__(name: str) -> Any:
    if name == "_basics":
        from ..common.basics import HorovodBasics

        return HorovodBasics()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
