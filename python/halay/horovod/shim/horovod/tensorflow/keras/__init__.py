# SPDX-License-Identifier: Apache-2.0
"""halay.keras under Horovod's name."""

import sys as _sys

from ...keras import *  # noqa: F403  (its __all__ is Horovod's list)
from ...keras import __all__ as _names
from ...keras import callbacks, elastic

_sys.modules[f"{__name__}.callbacks"] = callbacks
_sys.modules[f"{__name__}.elastic"] = elastic

__all__ = [*_names]
