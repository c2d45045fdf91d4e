# SPDX-License-Identifier: Apache-2.0
"""What a program hears that asks what its Horovod was built with.

Programs ask to decide what they may do: call init() again (with Gloo), pass mpi4py's communicators
(with MPI), reduce on the GPU (with NCCL). The answers are those under which they do what works.
"""

from __future__ import annotations

import os
from typing import Callable, NamedTuple


class Probe(NamedTuple):
    """One probe's answer now, and why."""

    answer: Callable[[], int]
    text: str


def mpi_wanted() -> bool:
    """Whether HOROVOD_CONTROLLER or HOROVOD_CPU_OPERATIONS asks to be taken for MPI."""
    chosen = (os.environ.get(f"HOROVOD_{name}", "") for name in ("CONTROLLER", "CPU_OPERATIONS"))
    return any(value.lower() == "mpi" for value in chosen)


def _no() -> bool:
    return False


def _not_mpi() -> bool:
    return not mpi_wanted()


def _none() -> int:
    return 0


def _threads() -> bool:
    if not mpi_wanted():
        raise ValueError(
            "mpi_threads_supported() was called and MPI is not enabled: Halay uses none. Any "
            "thread may call it, and mpi4py may be used beside it; HOROVOD_CONTROLLER=mpi makes "
            "this answer True"
        )
    return True


PROBES: dict[str, Probe] = {
    "gloo_built": Probe(lambda: True, "Halay stands in for it: CPUs, and init() after shutdown()"),
    "gloo_enabled": Probe(_not_mpi, "True; False with HOROVOD_CONTROLLER=mpi"),
    "mpi_built": Probe(mpi_wanted, "False; True with HOROVOD_CONTROLLER=mpi"),
    "mpi_enabled": Probe(mpi_wanted, "False; True with HOROVOD_CONTROLLER=mpi"),
    "mpi_threads_supported": Probe(_threads, "ValueError, as without MPI; else True"),
    "nccl_built": Probe(_none, "0: GPU memory is moved by Halay itself"),
    "ddl_built": Probe(_no, "False: DDL is gone"),
    "ccl_built": Probe(_no, "False"),
    "cuda_built": Probe(lambda: True, "True: tensors of CUDA devices are taken"),
    "rocm_built": Probe(_no, "False"),
}


def table() -> str:
    """The probes as a Markdown table."""
    rows = ["| probe | answer |", "|---|---|"]
    return "\n".join(rows + [f"| {name}() | {probe.text} |" for name, probe in PROBES.items()])


def mpi_built() -> bool:
    """False unless MPI's part is asked for."""
    return bool(PROBES["mpi_built"].answer())


def mpi_enabled() -> bool:
    """As mpi_built()."""
    return bool(PROBES["mpi_enabled"].answer())


def mpi_threads_supported() -> bool:
    """True where mpi_enabled(), else ValueError."""
    return bool(PROBES["mpi_threads_supported"].answer())


def gloo_built() -> bool:
    """Always True."""
    return bool(PROBES["gloo_built"].answer())


def gloo_enabled() -> bool:
    """True unless mpi_enabled()."""
    return bool(PROBES["gloo_enabled"].answer())


def nccl_built() -> int:
    """NCCL's version; 0 without."""
    return int(PROBES["nccl_built"].answer())


def ddl_built() -> bool:
    """Always False."""
    return bool(PROBES["ddl_built"].answer())


def ccl_built() -> bool:
    """Always False."""
    return bool(PROBES["ccl_built"].answer())


def cuda_built() -> bool:
    """Whether tensors of CUDA devices are taken."""
    return bool(PROBES["cuda_built"].answer())


def rocm_built() -> bool:
    """Whether tensors of ROCm devices are taken."""
    return bool(PROBES["rocm_built"].answer())
