# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_RANK and the like, for programs that read them instead of asking.

horovodrun sets them; other launchers do not. When `horovod` is imported they are set from what the
launcher did set, as far as that goes; after init() they are exact. A variable that is inherited
from another job is wrong in a new one, so what the launcher says goes before it.
"""

from __future__ import annotations

import os
import platform

from .._job import job_value

# A launcher's variables: rank, size, rank in the node, ranks in the node. Empty: it has none.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", ""),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", ""),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)
NAMES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")


def guess() -> dict[str, int]:
    """What the launcher's variables say: at least RANK and SIZE, or nothing."""
    env = os.environ
    ranks, rank = job_value("ranks") or "", env.get("PMIX_RANK", "")
    for variables in _LAUNCHERS:
        if variables[0] == "PMIX_RANK" and ranks.isdigit() and rank.isdigit():
            found = {"RANK": int(rank), "SIZE": int(ranks)}
            if job_value("launcher") == "halayrun":
                # halayrun starts ranks on one machine; on several it is another launcher that does.
                found.update(LOCAL_RANK=found["RANK"], LOCAL_SIZE=found["SIZE"])
                found.update(CROSS_RANK=0, CROSS_SIZE=1)
            return found
        if not all(env.get(variable, "").isdigit() for variable in variables[:2]):
            continue
        return {
            name: int(env[variable])
            for name, variable in zip(NAMES, variables)
            if variable and env.get(variable, "").isdigit()
        }
    return {}


def export(known: dict[str, int]) -> None:
    """Sets HOROVOD_<name> for what is known, and the host's unless halayrun has named it."""
    for name, value in known.items():
        os.environ[f"HOROVOD_{name}"] = str(value)
    os.environ.setdefault("HOROVOD_HOSTNAME", platform.node())


def without(env: dict[str, str]) -> dict[str, str]:
    """An environment for another job: none of this one's numbers."""
    gone = {f"HOROVOD_{name}" for name in (*NAMES, "HOSTNAME")}
    return {name: value for name, value in env.items() if name not in gone}
