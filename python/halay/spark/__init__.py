# SPDX-License-Identifier: Apache-2.0
"""Horovod's run() on Spark: a function on each rank of a job whose ranks are processes beside
Spark's tasks (docs/spark.md). Needs pyspark, in the calls only.
"""

from .._engines import WorkerLost
from .driver import run, run_elastic

__all__ = ["WorkerLost", "get_available_devices", "run", "run_elastic"]

rank_gpus: list[str] = []


def get_available_devices() -> list[str]:
    """In a rank: the GPUs of its Spark task, as the rank's CUDA numbers them."""
    return list(rank_gpus)
