# SPDX-License-Identifier: Apache-2.0
"""halay.spark.keras under Horovod's name."""

from halay.spark.keras import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
