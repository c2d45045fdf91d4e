# SPDX-License-Identifier: Apache-2.0
"""halay.keras under Horovod's name."""

from halay.horovod import surface as _surface
from halay.horovod.life import init

from ..keras import callbacks, elastic

_NAMES = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "load_model",
    "reducescatter",
]
_members = _surface.fetch(
    "halay.keras", [*_NAMES, *_surface.LIFE, *_surface.TOPOLOGY, *_surface.SETS], "horovod.keras"
)
_members.update(_surface.fetch("halay.horovod.probes", _surface.PROBES, "horovod.keras"))
globals().update(_members)

__all__ = ["callbacks", "elastic", "init", *_members]
