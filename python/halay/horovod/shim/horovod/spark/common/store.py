# SPDX-License-Identifier: Apache-2.0
"""halay.spark.store under Horovod's name."""

from halay.spark.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]
