# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNormalization: Keras's layer over the joined batch of all ranks.

Each rank sends its count, mean and variance; they are put together as Chan, Golub and LeVeque do
(Updating formulae and a pairwise algorithm for computing sample variances, 1979). Ranks may have
batches of different sizes.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._basics import size
from .ops import _allreduce


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """As tf.keras.layers.BatchNormalization, with mean and variance of all ranks in training."""

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization has no fused form: leave fused out")
        kwargs.setdefault("name", "sync_batch_normalization")
        try:
            super().__init__(fused=False, **kwargs)
        except (TypeError, ValueError):  # Keras 3 has no such argument
            super().__init__(**kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if size() == 1:
            return mean, variance
        narrow = mean.dtype
        mean, variance = tf.cast(mean, tf.float32), tf.cast(variance, tf.float32)
        count = tf.cast(tf.size(inputs), tf.float32) / tf.cast(tf.size(mean), tf.float32)
        first = _allreduce(tf.concat([[count], tf.reshape(mean * count, [-1])], 0))
        joined = tf.reshape(first[1:] / first[0], tf.shape(mean))
        own = (variance + tf.square(mean - joined)) * count
        spread = _allreduce(own) / first[0]
        joined.set_shape(mean.shape)
        return tf.cast(joined, narrow), tf.cast(spread, narrow)
