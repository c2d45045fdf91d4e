# SPDX-License-Identifier: Apache-2.0
"""log(): from a worker to the callbacks of run()."""

from __future__ import annotations

import warnings
from typing import Any

from .._agents import log as _log


def log(info_dict: Any) -> None:
    """Any value that can be pickled. Where no callback can hear it, a warning, once."""
    if not _log(info_dict):
        warnings.warn("ray_logger.log(): nobody listens to this process", stacklevel=2)
