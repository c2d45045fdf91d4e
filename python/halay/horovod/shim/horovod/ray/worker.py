# SPDX-License-Identifier: Apache-2.0
"""The actor."""

from halay.ray import BaseHorovodWorker

__all__ = ["BaseHorovodWorker"]
