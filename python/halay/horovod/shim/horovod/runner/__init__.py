# SPDX-License-Identifier: Apache-2.0
"""horovod.run()."""

from halay.horovod.launch import Arguments as _HorovodArgs
from halay.horovod.launch import run

__all__ = ["_HorovodArgs", "run"]
