# SPDX-License-Identifier: Apache-2.0
"""Estimator and transformer of Spark ML for PyTorch Lightning's modules (docs/estimators.md)."""

from ..torch import TorchModel
from .estimator import TorchEstimator

__all__ = ["TorchEstimator", "TorchModel"]
