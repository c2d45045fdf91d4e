# SPDX-License-Identifier: Apache-2.0
"""halay.spark.estimator under Horovod's name."""

from halay.spark.estimator import EstimatorParams

__all__ = ["EstimatorParams"]
