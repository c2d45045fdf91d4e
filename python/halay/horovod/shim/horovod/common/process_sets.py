# SPDX-License-Identifier: Apache-2.0
"""Sets of ranks that run collectives of their own."""

from halay.horovod import surface as _surface

_members = _surface.fetch("halay._process_sets", _surface.SETS, "horovod.common.process_sets")
globals().update(_members)

__all__ = [*_members]
