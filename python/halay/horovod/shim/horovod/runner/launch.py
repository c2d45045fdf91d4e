# SPDX-License-Identifier: Apache-2.0
"""What programs and tests take from Horovod's launcher; also python -m horovod.runner.launch."""

import sys

from halay.horovod.command import check_build, main, parse_args, run_elastic
from halay.horovod.launch import launch as _run

from ..common.util import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built

_run_elastic = run_elastic


def run_commandline() -> None:
    """horovodrun, with the words of this process; does not return."""
    sys.exit(main())


__all__ = [
    "_run",
    "_run_elastic",
    "ccl_built",
    "check_build",
    "ddl_built",
    "gloo_built",
    "mpi_built",
    "nccl_built",
    "parse_args",
    "run_commandline",
]

if __name__ == "__main__":
    run_commandline()
