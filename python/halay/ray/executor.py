# SPDX-License-Identifier: Apache-2.0
"""RayExecutor: the calls that Horovod's users know."""

from __future__ import annotations

import secrets
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import ray

from .._engines import Loss, WorkerLost
from ..horovod import SHIM
from .crew import Crew
from .elastic_executor import Elastic, ElasticParams
from .placement import Placement, Shape

__all__ = ["Loss", "RayExecutor", "Settings", "WorkerLost"]


@dataclass
class Settings:
    """timeout_s: how long hvd.init() waits, and the executor after a failure. nics: one name.

    No ssh is used and no key but the one that each start() draws, so the rest has no effect.
    """

    nics: Iterable[str] | None = None
    verbose: int = 1
    key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100
    elastic: bool = False


def _refuse_callbacks(callbacks: Any) -> None:
    if callbacks:
        raise NotImplementedError(
            "callbacks=...: there is no log of rank 0 that could call them; return the values, or "
            "pass a ray.util.queue.Queue to the function"
        )


@dataclass
class _Start:
    """What start() was told, for workers that come later too."""

    cls: type | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    variables: dict[str, str]


class RayExecutor:
    """num_workers actors, or num_hosts times num_workers_per_host, that are the ranks of a job; or,
    with min_workers, an elastic job of as many workers as there is room for, up to max_workers.

    start() makes the actors; in what they run afterwards hvd.init() meets the others. Ranks are
    numbered host by host. After a failure the next call begins a new job: lost workers are
    replaced, the others keep their process and become ranks of it, the first one rank 0.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: Iterable[str] | None = None,
    ) -> Settings:
        """placement_group_timeout_s: how long start() waits for room in the Ray cluster."""
        if ssh_identity_file is not None or ssh_str is not None:
            warnings.warn("ssh_identity_file and ssh_str: no ssh is used", stacklevel=2)
        return Settings(
            nics=nics,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

    def __init__(
        self,
        settings: Any = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int | None = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: float | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Any = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        self.settings = settings if settings is not None else Settings()
        self._elastic: Elastic | None = None
        self._crew: Crew | None = None
        self._start = _Start(None, (), {}, {})
        if max_workers and (not min_workers or min_workers <= 0):
            raise ValueError("max_workers needs a min_workers of at least 1")
        if min_workers and (num_workers or num_hosts):
            raise ValueError(
                "Both `min_workers` and `num_workers` provided: they, and num_hosts, exclude each "
                "other"
            )
        if min_workers is not None:
            params = ElasticParams(
                cpus_per_worker,
                use_gpu,
                gpus_per_worker,
                min_workers,
                max_workers,
                reset_limit,
                cooldown_range,
                elastic_timeout,
                override_discovery,
            )
            self._elastic = Elastic(self.settings, params)
            return
        if reset_limit is not None or cooldown_range is not None:
            raise ValueError("reset_limit and cooldown_range need min_workers")
        if gpus_per_worker and not use_gpu:
            raise ValueError("gpus_per_worker needs use_gpu=True")
        if use_gpu and gpus_per_worker is not None and gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker must be at least 1, not {gpus_per_worker}")
        if (num_workers is None) == (num_hosts is None):
            raise ValueError("give either num_workers, or num_hosts and num_workers_per_host")
        gpus = (gpus_per_worker or 1) if use_gpu else 0
        self._shape = Shape(
            num_workers,
            num_hosts,
            num_workers_per_host or 1,
            cpus_per_worker,
            gpus,
            use_current_placement_group,
        )
        if self._shape.size < 1:
            raise ValueError(f"there must be at least one worker, not {self._shape.size}")

    @property
    def workers(self) -> list[Any]:
        """The actors, by rank."""
        return self._crew.actors() if self._crew is not None else []

    def _timeout_s(self) -> float:
        return float(getattr(self.settings, "timeout_s", Settings.timeout_s))

    def _placement_timeout_s(self) -> float:
        default = Settings.placement_group_timeout_s
        return float(getattr(self.settings, "placement_group_timeout_s", default))

    def _variables(self, extra: Mapping[str, Any] | None) -> dict[str, str]:
        variables = {}
        if self._elastic is None:
            variables["HALAY_START_DEADLINE"] = f"{self._timeout_s():g}"
        nics = list(getattr(self.settings, "nics", None) or ())
        if len(nics) > 1:
            warnings.warn(f"nics: ranks listen at one of them, {nics[0]}", stacklevel=3)
        if nics:
            variables["HALAY_INTERFACE"] = nics[0]
        variables.update({name: str(value) for name, value in (extra or {}).items()})
        return variables

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts the workers, and makes an executable_cls(*args, **kwargs) in each if one is given.

        extra_env_vars are set in the workers before. Once more: the workers that are there begin
        anew, in the same processes. TimeoutError if the cluster has no room. With min_workers it
        only waits for room: workers and executables are made in each run().
        """
        variables = self._variables(extra_env_vars)
        if self._elastic is not None:
            given = (executable_cls, executable_args or (), executable_kwargs or {})
            self._elastic.start(*given, variables)
            return
        self._start = _Start(
            executable_cls, executable_args or (), executable_kwargs or {}, variables
        )
        try:
            if self._crew is None:
                placement = Placement(self._shape, self._placement_timeout_s())
                self._crew = Crew(placement, self._timeout_s(), SHIM in sys.path)
            else:
                self._crew.look()
            self._begin(self._crew)
        except BaseException:
            self.shutdown()
            raise

    def _begin(self, crew: Crew) -> None:
        """A new job of all workers."""
        crew.hire(self._placement_timeout_s())
        crew.assign(self._start.variables, self._timeout_s())
        cls, args, kwargs = self._start.cls, self._start.args, self._start.kwargs
        if cls is not None:
            crew.broken = True  # until there is one on each
            crew.collect([a.start_executable.remote(cls, args, kwargs) for a in crew.actors()])
            crew.broken = False

    def _ready(self) -> Crew:
        """The crew, complete and in a job that works."""
        crew = self._crew
        if crew is None:
            raise RuntimeError("RayExecutor: call start() first")
        crew.look()
        if crew.broken:
            self._begin(crew)
        return crew

    def execute(self, fn: Callable[[Any], Any], callbacks: Any = None) -> list[Any]:
        """What fn(executable) returned on each worker, by rank.

        WorkerLost if workers are lost; else what fn raised on the one that failed first. With
        min_workers: of the ranks that there were at the end; JobEnded if there are too few, or if
        reset_limit is reached. callbacks get what ray_logger.log() is given in a worker.
        """
        if self._elastic is not None:
            return self._elastic.execute(fn, callbacks)
        _refuse_callbacks(callbacks)
        crew = self._ready()
        return crew.collect([actor.execute.remote(fn) for actor in crew.actors()])

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Any = None,
    ) -> list[Any]:
        """What fn(*args, **kwargs) returned on each worker, by rank; raises as execute()."""
        return self.execute(_call_of(fn, args, kwargs), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Any = None,
    ) -> list[Any]:
        """As run(), but returns Ray's references at once: ray.get() them, and nobody watches."""
        self._refuse_where_elastic("run_remote", "run")
        _refuse_callbacks(callbacks)
        crew = self._crew
        if crew is None or crew.broken:
            crew = self._ready()
        call = _call_of(fn, args, kwargs)
        crew.unwatched = True
        return [actor.execute.remote(call) for actor in crew.actors()]

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """What fn(executable) returned on rank 0, which is the only one to run it."""
        self._refuse_where_elastic("execute_single", "execute")
        crew = self._ready()
        return crew.collect([crew.actors()[0].execute.remote(fn)])[0]

    def _refuse_where_elastic(self, name: str, other: str) -> None:
        if self._elastic is not None:
            raise NotImplementedError(
                f"{name}() with min_workers: workers come and go, so there are none to hold on to; "
                f"{other}() returns what they have"
            )

    def shutdown(self) -> None:
        """Ends the workers and gives their room back. start() may follow."""
        if self._elastic is not None:
            self._elastic.shutdown()
        crew, self._crew = self._crew, None
        if crew is not None and ray.is_initialized():
            crew.dismiss()


def _call_of(
    fn: Callable[..., Any], args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Callable[[Any], Any]:
    given, named = list(args or ()), dict(kwargs or {})
    return lambda _: fn(*given, **named)
