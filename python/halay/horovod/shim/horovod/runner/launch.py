# SPDX-License-Identifier: Apache-2.0
"""What programs and tests take from Horovod's launcher."""

from halay.horovod.launch import launch as _run

from ..common.util import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built

__all__ = ["_run", "ccl_built", "ddl_built", "gloo_built", "mpi_built", "nccl_built"]
