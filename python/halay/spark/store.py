# SPDX-License-Identifier: Apache-2.0
"""Where an Estimator keeps checkpoints, logs and, while it trains, rows (docs/estimators.md).

    PREFIX/intermediate_train_data[.NAME]   Parquet, as long as fit() runs
    PREFIX/runs/RUN_ID/checkpoint           replaced after each epoch
    PREFIX/runs/RUN_ID/logs/history.json    what was measured in each epoch so far

Spark writes by Hadoop's file systems, all else goes through fsspec: a path must mean the same to
both.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections.abc import Mapping
from typing import Any

SPARKS_SCHEMES = {"s3": "s3a", "abfs": "abfss"}  # where Hadoop's name differs from fsspec's


def _replace(path: str, data: bytes) -> None:
    """Writes a local file in its own folder, where fsspec would write in /tmp and copy it."""
    part = f"{path}.{secrets.token_hex(4)}"
    try:
        with open(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(part)
        raise


class Store:
    """Paths below one URL of fsspec's, or below a path of a file system that all nodes share.

    storage_options: of fsspec's file system. save_runs=False: no checkpoint, no logs.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
    ) -> None:
        self.prefix_path = self.get_full_path(str(prefix_path))
        self.storage_options = dict(storage_options or {})
        self._train_path = self._below("intermediate_train_data", train_path)
        self._val_path = self._below("intermediate_val_data", val_path)
        self._test_path = self._below("intermediate_test_data", test_path)
        self._runs_path = self._below("runs", runs_path)
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or "checkpoint"

    @staticmethod
    def create(prefix_path: str, *args: Any, **options: Any) -> Store:
        """The kind of Store that the path asks for."""
        if prefix_path.startswith(HDFSStore.SCHEME):
            return HDFSStore(prefix_path, *args, **options)
        on_databricks = "DATABRICKS_RUNTIME_VERSION" in os.environ
        if on_databricks and DBFSLocalStore.matches_dbfs(prefix_path):
            return DBFSLocalStore(prefix_path, *args, **options)
        return FilesystemStore(prefix_path, *args, **options)

    @functools.cached_property
    def fs(self) -> Any:
        """fsspec's file system."""
        import fsspec

        return fsspec.core.url_to_fs(self.prefix_path, **self.storage_options)[0]

    @property
    def arrow_fs(self) -> Any:
        """The file system for pyarrow: its own for local files, which it can map."""
        from pyarrow import fs

        if self._is_local():
            return fs.LocalFileSystem()
        return fs.PyFileSystem(fs.FSSpecHandler(self.fs))

    def _is_local(self) -> bool:
        from fsspec.implementations.local import LocalFileSystem

        return type(self.fs) is LocalFileSystem

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "fs"}

    def get_full_path(self, path: str) -> str:
        """As a URL."""
        return path if "://" in path else f"file://{os.path.abspath(path)}"

    def get_localized_path(self, path: str) -> str:
        """As the file system names it."""
        return str(self.fs._strip_protocol(path))

    def get_spark_path(self, path: str) -> str:
        """As Spark names it."""
        scheme, _, rest = path.partition("://")
        return f"{SPARKS_SCHEMES.get(scheme, scheme)}://{rest}"

    def _below(self, name: str, path: str | None) -> str:
        return self.get_full_path(path) if path else f"{self.prefix_path.rstrip('/')}/{name}"

    def get_train_data_path(self, idx: Any = None) -> str:
        return self._train_path if idx is None else f"{self._train_path}.{idx}"

    def get_val_data_path(self, idx: Any = None) -> str:
        return self._val_path if idx is None else f"{self._val_path}.{idx}"

    def get_test_data_path(self, idx: Any = None) -> str:
        return self._test_path if idx is None else f"{self._test_path}.{idx}"

    def saving_runs(self) -> bool:
        return self._save_runs

    def get_runs_path(self) -> str:
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        return f"{self._runs_path}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """The folder of the checkpoint."""
        return self.get_run_path(run_id) if self._save_runs else None

    def get_checkpoint_filename(self) -> str:
        return self._checkpoint_filename

    def get_checkpoint_file(self, run_id: str) -> str:
        return f"{self.get_run_path(run_id)}/{self._checkpoint_filename}"

    def get_logs_subdir(self) -> str:
        return "logs"

    def get_logs_path(self, run_id: str) -> str | None:
        return f"{self.get_run_path(run_id)}/logs" if self._save_runs else None

    def exists(self, path: str) -> bool:
        return bool(self.fs.exists(path))

    def read(self, path: str) -> bytes:
        return bytes(self.fs.cat_file(path))

    def write(self, path: str, data: bytes) -> None:
        """Replaces the file, at once where the file system can: local ones do, whatever fails."""
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if self._is_local():
            _replace(self.get_localized_path(path), data)
            return
        with self.fs.transaction, self.fs.open(path, "wb") as file:
            file.write(data)

    def write_text(self, path: str, text: str) -> None:
        self.write(path, text.encode())

    def remove(self, path: str) -> None:
        """The folder, if it is there."""
        if self.fs.exists(path):
            self.fs.rm(path, recursive=True)

    def is_parquet_dataset(self, path: str) -> bool:
        """Whether there are Parquet files below."""
        try:
            return bool(self.get_parquet_dataset(path).files)
        except (OSError, ValueError):
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        """As a pyarrow.dataset.Dataset."""
        from pyarrow import dataset

        return dataset.dataset(
            self.get_localized_path(path), filesystem=self.arrow_fs, format="parquet"
        )


class FilesystemStore(Store):
    """Horovod's name for a Store on any file system of fsspec's."""


class LocalStore(FilesystemStore):
    """Horovod's name for a FilesystemStore."""


class HDFSStore(Store):
    """On HDFS, by pyarrow's libhdfs. The path may leave out the scheme."""

    SCHEME = "hdfs://"

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        extra_conf: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> None:
        named: dict[str, Any] = {
            "host": host,
            "port": port,
            "user": user,
            "kerb_ticket": kerb_ticket,
        }
        named["extra_conf"] = dict(extra_conf) if extra_conf else None
        options = {name: value for name, value in named.items() if value is not None}
        super().__init__(
            prefix_path, storage_options={**options, **(storage_options or {})}, **given
        )

    def get_full_path(self, path: str) -> str:
        return path if "://" in path else self.SCHEME + path


class DBFSLocalStore(FilesystemStore):
    """On Databricks' file system by the folder /dbfs; the path may say dbfs:/, too."""

    PLACES = ("file:///dbfs/", "file:/dbfs/", "dbfs:/", "/dbfs/")

    @classmethod
    def matches_dbfs(cls, path: str) -> bool:
        return path.startswith(cls.PLACES) and not path.startswith("dbfs://")

    def get_full_path(self, path: str) -> str:
        if not self.matches_dbfs(path):
            raise ValueError(f"{path} is not below dbfs:/ or /dbfs/")
        place = next(place for place in self.PLACES if path.startswith(place))
        return f"file:///dbfs/{path[len(place) :]}"
