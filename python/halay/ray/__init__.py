# SPDX-License-Identifier: Apache-2.0
"""Horovod's RayExecutor: a job whose ranks are Ray's actors, or processes beside them where ranks
come and go (docs/ray.md). Needs Ray.
"""

from .._agents import JobEnded
from .elastic_executor import ElasticRayExecutor
from .executor import RayExecutor, Settings, WorkerLost
from .worker import BaseHorovodWorker

__all__ = [
    "BaseHorovodWorker",
    "ElasticRayExecutor",
    "JobEnded",
    "RayExecutor",
    "Settings",
    "WorkerLost",
]
