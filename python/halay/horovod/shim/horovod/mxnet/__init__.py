# SPDX-License-Identifier: Apache-2.0
"""halay.mxnet under Horovod's name."""

import halay.mxnet as _halay
from halay.horovod import surface as _surface
from halay.horovod.life import init

_members = {name: getattr(_halay, name) for name in _halay.__all__ if name != "init"}
_members.update(_surface.fetch("halay.horovod.probes", _surface.PROBES, "horovod.mxnet"))
globals().update(_members)

__all__ = ["init", *_members]
