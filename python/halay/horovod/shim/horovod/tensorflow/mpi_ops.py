# SPDX-License-Identifier: Apache-2.0
"""The collectives, life cycle, topology and probes."""

from __future__ import annotations

from typing import Any

from halay.horovod import surface as _surface
from halay.horovod.life import init

from ..common.util import num_rank_is_power_2 as check_num_rank_power_of_2

_OPERATIONS = [
    "allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
]
_INNER = ["_allreduce", "_grouped_allreduce", "_grouped_reducescatter", "_reducescatter"]
_names = [*_OPERATIONS, *_surface.LIFE, *_surface.TOPOLOGY, *_surface.SETS]
_members = _surface.fetch("halay.tensorflow", _names, "horovod.tensorflow")
_members.update(_surface.fetch("halay.horovod.probes", _surface.PROBES, "horovod.tensorflow"))
globals().update(_members)
globals().update(_surface.fetch("halay.tensorflow.ops", _INNER, "horovod.tensorflow.mpi_ops"))

__all__ = [*_members, "check_num_rank_power_of_2", "init"]


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """The reduction; average is its old spelling."""
    from halay._reductions import choose_op

    return choose_op(op, average)


def _check_has_gpu() -> bool:
    return False


def __getattr__(name: str) -> Any:
    if name == "_basics":
        from ..common.basics import HorovodBasics

        return HorovodBasics()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
