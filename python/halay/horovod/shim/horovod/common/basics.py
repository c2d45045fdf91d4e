# SPDX-License-Identifier: Apache-2.0
"""HorovodBasics: the life cycle, topology and probes as methods."""

from __future__ import annotations

from typing import Any

from halay.horovod import surface as _surface

__all__ = ["HorovodBasics"]

_METHODS = {"init", *_surface.LIFE, *_surface.TOPOLOGY, *_surface.PROBES}
_REDUCTIONS = {"Average", "Sum", "Adasum", "Min", "Max", "Product"}


class HorovodBasics:
    """There is one job a process: all objects of this class are alike, and take any arguments."""

    def __init__(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        from ..torch import mpi_ops

        if name not in _METHODS and name not in _REDUCTIONS:
            raise AttributeError(f"HorovodBasics has no {name!r} under Halay")
        return getattr(mpi_ops, name)
