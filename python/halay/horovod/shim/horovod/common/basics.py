# SPDX-License-Identifier: Apache-2.0
"""HorovodBasics: the life cycle, topology and probes as methods."""

from __future__ import annotations

from typing import Any

from halay import _session
from halay.horovod import surface as _surface
from halay.horovod.life import init as _init

__all__ = ["HorovodBasics"]

_REDUCTIONS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}
_members = {
    "init": _init,
    **_surface.fetch("halay._basics", [*_surface.LIFE, *_surface.TOPOLOGY], "HorovodBasics"),
    **_surface.fetch("halay.horovod.probes", _surface.PROBES, "HorovodBasics"),
    **_REDUCTIONS,
}


class HorovodBasics:
    """There is one job a process: all objects of this class are alike, and take any arguments."""

    def __init__(self, *_: Any) -> None:
        pass

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """process_set_id of each set, and its ranks."""
        members = _session.session().members
        return {number: list(members[number].ranks) for number in sorted(members)}

    def __getattr__(self, name: str) -> Any:
        if name not in _members:
            raise AttributeError(f"HorovodBasics has no {name!r} under Halay")
        return _members[name]
