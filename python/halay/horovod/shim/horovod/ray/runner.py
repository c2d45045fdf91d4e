# SPDX-License-Identifier: Apache-2.0
"""What programs and tests take from Horovod's module of this name."""

from halay.horovod import surface as _surface
from halay.ray import RayExecutor
from halay.ray import Settings as MiniSettings

Coordinator = _surface.Missing("horovod.ray.runner.Coordinator")

__all__ = ["Coordinator", "MiniSettings", "RayExecutor"]
