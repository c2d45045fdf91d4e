# SPDX-License-Identifier: Apache-2.0
"""halay.spark.lightning under Horovod's name."""

from halay.spark.lightning import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
