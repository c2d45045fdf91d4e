# SPDX-License-Identifier: Apache-2.0
"""Horovod's run() on Spark: a function on each rank of a job whose ranks are processes beside
Spark's tasks (docs/spark.md). Needs pyspark, in the calls only.
"""

from .._engines import WorkerLost
from .driver import run, run_elastic

__all__ = ["WorkerLost", "run", "run_elastic"]
