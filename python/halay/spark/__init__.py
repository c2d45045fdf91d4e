# SPDX-License-Identifier: Apache-2.0
"""Horovod's run() and run_elastic() on Spark: a function on each rank of a job whose ranks are
processes beside Spark's tasks (docs/spark.md). Needs pyspark, in the calls only.
"""

import os

from .._agents import JobEnded
from .._engines import WorkerLost
from .driver import run
from .elastic import run_elastic

__all__ = ["JobEnded", "WorkerLost", "get_available_devices", "run", "run_elastic"]

rank_gpus: list[str] = []
task_gpus: list[str] = []  # of an elastic run: where they are depends on the meeting


def get_available_devices() -> list[str]:
    """In a rank: the GPUs of its Spark task, as the rank's CUDA numbers them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return list(rank_gpus) or [str(visible.index(gpu)) for gpu in task_gpus if gpu in visible]
