# SPDX-License-Identifier: Apache-2.0
"""Workers that come and go, by the names of Horovod's newer module."""

from halay.horovod import surface as _surface
from halay.ray.discovery import RayHostDiscovery, TestDiscovery
from halay.ray.elastic_executor import ElasticParams

ElasticAdapter = _surface.Missing("horovod.ray.elastic_v2.ElasticAdapter")

__all__ = ["ElasticAdapter", "ElasticParams", "RayHostDiscovery", "TestDiscovery"]
