# SPDX-License-Identifier: Apache-2.0
"""halay.spark.backend under Horovod's name."""

from halay.spark.backend import Backend, SparkBackend

__all__ = ["Backend", "SparkBackend"]
