# SPDX-License-Identifier: Apache-2.0
"""What programs and tests take from Horovod's launcher."""

from halay.horovod.command import parse_args, run_elastic
from halay.horovod.launch import launch as _run

from ..common.util import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built

_run_elastic = run_elastic

__all__ = [
    "_run",
    "_run_elastic",
    "ccl_built",
    "ddl_built",
    "gloo_built",
    "mpi_built",
    "nccl_built",
    "parse_args",
]
