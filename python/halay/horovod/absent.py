# SPDX-License-Identifier: Apache-2.0
"""Modules of Horovod's own insides that Halay does not have: their import says why.

It is a ModuleNotFoundError, as without this, so that programs which try do what they do then.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

_START = "halayrun, or the launcher that it finds, starts the ranks (horovod.run, horovodrun)"
_MEET = "ranks find each other through their launcher, without a server of Horovod's"
_OWN = "it is a part of Horovod's own launcher, and nothing here needs it"
ABSENT = {
    "horovod.runner.common.service": _START,
    "horovod.runner.common.util.host_hash": _OWN,
    "horovod.runner.common.util.network": _MEET,
    "horovod.runner.common.util.settings": _START,
    "horovod.runner.common.util.tiny_shell_exec": "use subprocess.run",
    "horovod.runner.driver": _START,
    "horovod.runner.elastic.registration": _OWN,
    "horovod.runner.elastic.rendezvous": _MEET,
    "horovod.runner.elastic.settings": _START,
    "horovod.runner.elastic.worker": "newcomers and losses reach a rank by halay_newcomers() and "
    "HorovodInternalError",
    "horovod.runner.http": _MEET,
    "horovod.runner.js_run": "halayrun --launcher jsrun does it",
    "horovod.runner.mpi_run": "halayrun --launcher mpirun does it",
    "horovod.runner.run_task": _START,
    "horovod.runner.task": _START,
    "horovod.runner.task_fn": _START,
    "horovod.runner.util.cache": "no host is tried before the start, so nothing of it is kept",
    "horovod.runner.util.lsf": "halayrun reads LSF's own variables (docs/lsf.md)",
    "horovod.runner.util.remote": _START,
    "horovod.runner.util.streams": _OWN,
    "horovod.run": "of a release before 0.20; its modules are horovod.runner's since",
}


class Finder(MetaPathFinder):
    """The last one that is asked."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """None, or ModuleNotFoundError with the reason."""
        why = ABSENT.get(name)
        if why is not None:
            # Without its attribute name, by which "from package import module" drops the text.
            raise ModuleNotFoundError(f"{name} is not there in Halay: {why}")


def install() -> None:
    """Once a process."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())
