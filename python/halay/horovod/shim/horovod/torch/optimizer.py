# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer."""

from halay.torch import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
