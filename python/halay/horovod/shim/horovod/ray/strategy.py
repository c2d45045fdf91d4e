# SPDX-License-Identifier: Apache-2.0
"""Room for the workers."""

from halay.ray.placement import create_placement_group

__all__ = ["create_placement_group"]
