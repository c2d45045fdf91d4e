# SPDX-License-Identifier: Apache-2.0
"""What RayExecutor does with min_workers, and Horovod's older executor of elastic jobs."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from .._agents import Orders
from ..horovod import SHIM
from ..horovod.discovery import HostDiscovery
from .discovery import RayHostDiscovery
from .elastic import Terms, run_job, wait_for_places

TIMEOUT_S = 600


@dataclass
class ElasticParams:
    """RayExecutor's arguments for an elastic job, by Horovod's names."""

    cpus_per_worker: float = 1
    use_gpu: bool = False
    gpus_per_worker: float | None = None
    min_workers: int = 1
    max_workers: int | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[float] | None = None
    elastic_timeout: float = TIMEOUT_S
    override_discovery: bool = True

    def __post_init__(self) -> None:
        if self.gpus_per_worker and not self.use_gpu:
            raise ValueError("gpus_per_worker needs use_gpu=True")
        if self.use_gpu and self.gpus_per_worker is not None and self.gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker must be at least 1, not {self.gpus_per_worker}")
        if self.min_workers < 1:
            raise ValueError(f"min_workers must be at least 1, not {self.min_workers}")
        if self.max_workers is not None and self.max_workers < self.min_workers:
            raise ValueError(
                f"max_workers must be at least min_workers ({self.min_workers}), not "
                f"{self.max_workers}"
            )
        if self.cooldown_range is not None:
            first, most = self.cooldown_range
            if not 0 < first <= most:
                raise ValueError(f"cooldown_range must grow from above 0, not {first} to {most}")
        self.gpus_per_worker = self.gpus_per_worker or int(self.use_gpu)

    def terms(self) -> Terms:
        """In the words of the job."""
        told = self.elastic_timeout or os.environ.get("HOROVOD_ELASTIC_TIMEOUT") or TIMEOUT_S
        return Terms(
            self.min_workers,
            self.max_workers,
            self.reset_limit,
            float(told),
            None if self.cooldown_range is None else tuple(self.cooldown_range),
            self.cpus_per_worker,
            self.gpus_per_worker or 0,
        )


class _Call:
    """fn(executable), in a process that makes its executable first."""

    def __init__(self, fn: Callable[[Any], Any], cls: type | None, args: Any, kwargs: Any) -> None:
        self.fn, self.cls, self.args, self.kwargs = fn, cls, args, kwargs

    def __call__(self) -> Any:
        made = None if self.cls is None else self.cls(*self.args, **self.kwargs)
        return self.fn(made)


class Elastic:
    """Jobs one after the other, each with workers and processes of its own."""

    def __init__(self, settings: Any, params: ElasticParams) -> None:
        self._settings, self._params = settings, params
        self._made: tuple[type | None, Sequence[Any], Mapping[str, Any]] | None = None
        self._variables: dict[str, str] = {}
        self._ends: list[Callable[[], Any]] = []  # of jobs that run

    def _discovery(self) -> HostDiscovery:
        params = self._params
        if params.override_discovery:
            return RayHostDiscovery(
                params.use_gpu, params.cpus_per_worker, params.gpus_per_worker or 0
            )
        found = getattr(self._settings, "discovery", None)
        if found is None:
            raise ValueError("override_discovery=False needs settings.discovery")
        return found  # type: ignore[no-any-return]

    def start(
        self,
        cls: type | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        variables: dict[str, str],
    ) -> None:
        """Waits until there is room for min_workers."""
        wait_for_places(self._discovery(), self._params.terms())
        self._made, self._variables = (cls, args, kwargs), variables

    def execute(
        self, fn: Callable[[Any], Any], callbacks: Iterable[Callable[[Any], Any]] | None
    ) -> list[Any]:
        """One job."""
        if self._made is None:
            raise RuntimeError("RayExecutor: call start() first")
        function = bytes(ray.cloudpickle.dumps(_Call(fn, *self._made)))
        orders = Orders(function, "ray.cloudpickle", SHIM in sys.path)
        given = (
            self._params.terms(),
            self._discovery(),
            orders,
            self._variables,
            list(callbacks or ()),
            bool(getattr(self._settings, "verbose", 1)),
        )
        if ray.util.client.ray.is_connected():  # the workers cannot reach this machine
            ref = ray.remote(run_job).options(num_cpus=0).remote(*given)
            with self._ended_by(lambda: ray.cancel(ref)):
                return list(ray.get(ref))
        is_over = threading.Event()
        with self._ended_by(is_over.set):
            return run_job(*given, is_over)

    @contextlib.contextmanager
    def _ended_by(self, end: Callable[[], Any]) -> Iterator[None]:
        """What runs meanwhile is ended by shutdown(), called in another thread or in a callback."""
        self._ends.append(end)
        try:
            yield
        finally:
            self._ends.remove(end)

    def shutdown(self) -> None:
        self._made = None
        for end in list(self._ends):
            end()


class ElasticSettings:
    """What ElasticRayExecutor.create_settings() returns; discovery may be set."""

    def __init__(self, **given: Any) -> None:
        self.discovery: HostDiscovery | None = None
        self.verbose: Any = 1
        self.min_num_proc, self.elastic_timeout = 1, float(TIMEOUT_S)
        self.max_num_proc: int | None = None
        self.reset_limit: int | None = None
        self.cooldown_range: Sequence[float] | None = None
        self.nics: Iterable[str] | None = None
        self.__dict__.update(given)


class ElasticRayExecutor:
    """Horovod's older one: RayExecutor(min_workers=...) does the same, and more."""

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float = TIMEOUT_S,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        nics: Iterable[str] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """timeout_s and ssh_identity_file have no effect; min_np, max_np: the old spelling."""
        for name, old in (("min_np", min_np), ("max_np", max_np)):
            if old is not None:
                warnings.warn(f"{name} is the old spelling", DeprecationWarning, stacklevel=2)
        return ElasticSettings(
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            nics=nics,
            **kwargs,
        )

    def __init__(
        self,
        settings: Any,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: float | None = None,
        env_vars: Mapping[str, Any] | None = None,
        override_discovery: bool = True,
    ) -> None:
        params = ElasticParams(
            cpus_per_slot,
            use_gpu,
            gpus_per_slot,
            settings.min_num_proc,
            settings.max_num_proc,
            settings.reset_limit,
            getattr(settings, "cooldown_range", None),
            settings.elastic_timeout,
            override_discovery,
        )
        self.settings = settings
        self._variables = {name: str(value) for name, value in (env_vars or {}).items()}
        self._elastic = Elastic(settings, params)

    def start(self) -> None:
        """Waits until there is room for min_num_proc workers; TimeoutError."""
        nics = [("HALAY_INTERFACE", str(name)) for name in list(self.settings.nics or ())[:1]]
        self._elastic.start(None, (), {}, {**dict(nics), **self._variables})

    def run(
        self,
        worker_fn: Callable[[], Any],
        callbacks: Iterable[Callable[[Any], Any]] | None = None,
    ) -> list[Any]:
        """As RayExecutor's."""
        return self._elastic.execute(lambda _: worker_fn(), callbacks)
