# SPDX-License-Identifier: Apache-2.0
"""Backend: what starts the ranks of an Estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from .driver import run
from .session import active_context


class Backend:
    """What starts the ranks. Others than SparkBackend are the user's."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Calls fn(*args, **kwargs) on each rank: what they returned, by rank."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """How many ranks there are."""
        raise NotImplementedError


class SparkBackend(Backend):
    """halay.spark.run().

    num_proc: spark.default.parallelism if left out. env: of the ranks, in addition to those of the
    executors. given: more arguments of run().
    """

    def __init__(
        self, num_proc: int | None = None, env: Mapping[str, Any] | None = None, **given: Any
    ) -> None:
        context = active_context()
        self._num_proc = num_proc or int(context.defaultParallelism)
        self._env = env
        self._given = given

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        variables = {**(self._env or {}), **(env or {})}
        return run(fn, args, kwargs, num_proc=self._num_proc, env=variables, **self._given)

    def num_processes(self) -> int:
        return self._num_proc
