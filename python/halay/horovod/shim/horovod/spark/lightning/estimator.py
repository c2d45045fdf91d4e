# SPDX-License-Identifier: Apache-2.0
"""halay.spark.lightning under Horovod's name."""

from halay.spark.estimator import EstimatorParams
from halay.spark.lightning import TorchEstimator, TorchModel
from halay.spark.lightning.estimator import MIN_PL_VERSION

__all__ = ["MIN_PL_VERSION", "EstimatorParams", "TorchEstimator", "TorchModel"]
