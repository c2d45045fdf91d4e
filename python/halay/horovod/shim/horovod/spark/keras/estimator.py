# SPDX-License-Identifier: Apache-2.0
"""halay.spark.keras under Horovod's name."""

from halay.spark.estimator import EstimatorParams
from halay.spark.keras import KerasEstimator, KerasModel

__all__ = ["EstimatorParams", "KerasEstimator", "KerasModel"]
