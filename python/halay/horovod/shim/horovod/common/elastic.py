# SPDX-License-Identifier: Apache-2.0
"""States that are committed, restored and sent to all."""

from halay.horovod import surface as _surface

_members = _surface.fetch(
    "halay._elastic",
    ["ObjectState", "State", "run_fn"],
    "horovod.common.elastic",
)
globals().update(_members)

__all__ = [*_members]
