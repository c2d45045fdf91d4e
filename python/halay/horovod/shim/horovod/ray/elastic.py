# SPDX-License-Identifier: Apache-2.0
"""Workers that come and go."""

from halay.ray import ElasticRayExecutor
from halay.ray.discovery import RayHostDiscovery, TestDiscovery

__all__ = ["ElasticRayExecutor", "RayHostDiscovery", "TestDiscovery"]
