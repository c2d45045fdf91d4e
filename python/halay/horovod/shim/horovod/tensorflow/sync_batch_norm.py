# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNormalization."""

from halay.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
