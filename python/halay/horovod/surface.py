# SPDX-License-Identifier: Apache-2.0
"""Horovod's public names, and where Halay has them.

A name that Halay does not have yet is there all the same, so that a program which imports it and
never uses it runs; a call raises NotImplementedError that names it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, NoReturn

OPERATIONS = [
    "allreduce",
    "allreduce_async",
    "allreduce_",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_allreduce_",
    "grouped_allreduce_async_",
    "sparse_allreduce_async",
    "allgather",
    "allgather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "broadcast",
    "broadcast_async",
    "broadcast_",
    "broadcast_async_",
    "alltoall",
    "alltoall_async",
    "reducescatter",
    "reducescatter_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "barrier",
    "poll",
    "synchronize",
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
]
LIFE = ["shutdown", "is_initialized", "start_timeline", "stop_timeline"]
TOPOLOGY = [
    "size",
    "local_size",
    "cross_size",
    "rank",
    "local_rank",
    "cross_rank",
    "is_homogeneous",
]
PROBES = [
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
]
SETS = ["ProcessSet", "global_process_set", "add_process_set", "remove_process_set"]


class Missing:
    """Stands for what Halay does not have yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(
            f"{self._name} is not there in Halay yet; docs/migrating-from-horovod.md says what is"
        )

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        # What looks at a module's names (pydoc, inspect, pytest) asks for these, and goes on.
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}: not there in Halay yet>"


def _modules(names: Iterable[str]) -> list[Any]:
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:
            # It is not there yet; that something which it needs is not there is another matter.
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise
    return found


def fetch(sources: str | Iterable[str], names: Iterable[str], shown: str) -> dict[str, Any]:
    """Each name from the first of the modules that has it. shown: the module that shows it."""
    modules = _modules([sources] if isinstance(sources, str) else sources)
    found: dict[str, Any] = {}
    for name in names:
        holders = [module for module in modules if hasattr(module, name)]
        found[name] = getattr(holders[0], name) if holders else Missing(f"{shown}.{name}")
    return found


def missing(members: dict[str, Any]) -> list[str]:
    """The names of those that are not there."""
    return sorted(name for name, member in members.items() if isinstance(member, Missing))
