# SPDX-License-Identifier: Apache-2.0
"""Horovod's RayExecutor: a job whose ranks are Ray's actors (docs/ray.md). Needs Ray.

A worker that is lost is replaced by the next run(); the others keep their process.
"""

from .executor import ElasticRayExecutor, RayExecutor, Settings, WorkerLost
from .worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor", "Settings", "WorkerLost"]
