# SPDX-License-Identifier: Apache-2.0
"""halay.ray under Horovod's name."""

from halay.ray import BaseHorovodWorker, ElasticRayExecutor, RayExecutor

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
