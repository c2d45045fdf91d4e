# SPDX-License-Identifier: Apache-2.0
"""The collectives, life cycle, topology and probes."""

from __future__ import annotations

from typing import Any

from halay.horovod import surface as _surface
from halay.horovod.life import init

from ..common.exceptions import HorovodInternalError

_names = [*_surface.OPERATIONS, *_surface.LIFE, *_surface.TOPOLOGY, *_surface.SETS]
_members = _surface.fetch("halay.torch", _names, "horovod.torch")
_members.update(_surface.fetch("halay.horovod.probes", _surface.PROBES, "horovod.torch"))
globals().update(_members)

__all__ = [*_members, "HorovodInternalError", "init"]


def __getattr__(name: str) -> Any:
    if name == "_basics":
        from ..common.basics import HorovodBasics

        return HorovodBasics()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
