# SPDX-License-Identifier: Apache-2.0
"""Loaders of batches."""

from halay.horovod.data import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
