# SPDX-License-Identifier: Apache-2.0
"""Helpers that programs and tests import."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, TypeVar

from halay.horovod import probes as _probes

__all__ = [
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]

EXTENSIONS = ["tensorflow", "torch", "mxnet"]
_Item = TypeVar("_Item")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether Halay serves the framework and the framework is there."""
    served = ext_base_name in EXTENSIONS
    found = served and importlib.util.find_spec(ext_base_name) is not None
    if verbose:
        print(f"{ext_base_name}: {'' if found else 'not '}available")
    return found


def check_extension(ext_name: str, *_: Any) -> None:
    """ImportError unless extension_available(); ext_name may begin with "horovod."."""
    name = ext_name.rsplit(".", 1)[-1]
    if not extension_available(name):
        raise ImportError(f"Halay has no {name}, or {name} is not installed")


def check_installed_version(*_: Any, **__: Any) -> None:
    """Nothing: Halay is not built for one version of a framework."""


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework is there and sees a GPU."""
    found = _probes.gpu_available(ext_base_name)
    if verbose:
        print(f"{ext_base_name}: {'' if found else 'no '}GPU available")
    return found


def mpi_built(verbose: bool = False) -> bool:
    """As hvd.mpi_built()."""
    return _probes.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """As hvd.gloo_built()."""
    return _probes.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """As hvd.nccl_built()."""
    return _probes.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """As hvd.ddl_built()."""
    return _probes.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """As hvd.ccl_built()."""
    return _probes.ccl_built()


def _cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called once for each set of arguments. Unlike lru_cache, for ever."""
    results: dict[Any, Any] = {}

    def cached(*args: Any, **kwargs: Any) -> Any:
        key = (args, frozenset(kwargs.items()))
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return cached


@contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Sets variables for the time of a with block; those that are None are left as they are."""
    changed = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether it is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: list[_Item], n: int) -> list[list[_Item]]:  # noqa: E741
    """n parts in order; the first len(l) % n are longer by one."""
    short, longer = divmod(len(l), n)
    ends = [part * short + min(part, longer) for part in range(n + 1)]
    return [l[begin:end] for begin, end in zip(ends, ends[1:])]


def is_iterable(x: object) -> bool:
    """Whether iter(x) works."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether ver is target (major.minor.patch) or later."""
    from packaging import version

    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions are strings, not {ver!r} and {target!r}")
    if len(target.split(".")) != 3:
        raise ValueError(f"the target version must be major.minor.patch, not {target}")
    return bool(version.parse(ver) >= version.parse(target))
