# SPDX-License-Identifier: Apache-2.0
"""Estimator and transformer of Spark ML for PyTorch's models (docs/estimators.md)."""

from .estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
