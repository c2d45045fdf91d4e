# SPDX-License-Identifier: Apache-2.0
"""As horovod.data."""

from . import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
