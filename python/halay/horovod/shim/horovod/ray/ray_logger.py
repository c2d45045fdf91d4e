# SPDX-License-Identifier: Apache-2.0
"""From a worker to the callbacks of run()."""

from halay.ray.ray_logger import log

__all__ = ["log"]
