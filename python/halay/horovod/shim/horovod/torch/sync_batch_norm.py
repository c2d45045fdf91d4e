# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm."""

from halay.horovod import surface as _surface

_members = _surface.fetch("halay.torch", ["SyncBatchNorm"], "horovod.torch")
SyncBatchNorm = _members["SyncBatchNorm"]

__all__ = ["SyncBatchNorm"]
