# SPDX-License-Identifier: Apache-2.0
"""halay.spark.torch under Horovod's name."""

from halay.spark.estimator import EstimatorParams
from halay.spark.torch import TorchEstimator, TorchModel

__all__ = ["EstimatorParams", "TorchEstimator", "TorchModel"]
