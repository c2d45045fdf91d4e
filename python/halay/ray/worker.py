# SPDX-License-Identifier: Apache-2.0
"""What an actor does: it stands for a rank, another one whenever the executor says so.

Whatever loads the C library or a framework is imported when the executor's variables are there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import ray

from .._engines import Where, meeting_place


class BaseHorovodWorker:
    """A worker: executable is the object that start() was asked to make, None if it was not."""

    executable: Any = None

    def __init__(self, shim: bool = False) -> None:
        if shim:  # the driver's `horovod` is Halay's: so is this process's
            from ..horovod import install

            install()

    def node_id(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    def hostname(self) -> str:
        return socket.gethostname()

    def get_gpu_ids(self) -> list[Any]:
        """The numbers of the GPUs that Ray gives this worker."""
        return list(ray.get_gpu_ids())

    def where(self) -> Where:
        return Where(self.node_id(), self.hostname(), os.getpid(), self.get_gpu_ids())

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        return dict(os.environ)

    def meeting_place(self) -> str:
        """This node's address with a port that is free now: rank 0 listens there in hvd.init()."""
        return meeting_place(str(ray.util.get_node_ip_address()))

    def become(self, rank: int, size: int, address: str, secret: str) -> None:
        """Leaves the job that it is in; the next hvd.init() is this rank's of another one."""
        from .. import _session
        from .._core import Place

        self.executable = None
        _session.shutdown_quietly()
        _session.stand(Place(rank, size, address, secret))

    def leave(self) -> None:
        """Leaves the job, if it is in one, so that nobody waits for it there."""
        from .. import _session

        _session.shutdown_quietly()

    def start_executable(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes the executable, of which there is none without a class."""
        self.executable = None
        if executable_cls is not None:
            self.executable = executable_cls(*(executable_args or ()), **(executable_kwargs or {}))

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """func(executable). What it raises the driver hears, as far as it can be pickled."""
        try:
            return func(self.executable)
        except Exception as error:
            try:
                ray.cloudpickle.loads(ray.cloudpickle.dumps(error))
            except Exception:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            raise
