# SPDX-License-Identifier: Apache-2.0
"""What a program hears that asks what its Horovod was built with, also of `halay.torch` and others.

Programs ask to decide what they may do: call init() again (with Gloo), pass mpi4py's communicators
(with MPI), reduce on the GPU (with NCCL). The answers are those under which they do what works.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import Any, Callable, NamedTuple


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


NCCL_LEAST = 21800  # as in include/halay/group.h


def _nccl() -> int:
    name = os.environ.get("HALAY_NCCL_LIBRARY") or "libnccl.so.2"
    version = ctypes.c_int(0)
    try:
        if name in ("off", "own") or name.startswith("own:"):
            return 0
        if ctypes.CDLL(name).ncclGetVersion(ctypes.byref(version)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return version.value if version.value >= NCCL_LEAST else 0


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
    "nccl_built": Probe(
        _nccl, "the version of the NCCL that GPUs of a node use; 0 if none is found"
    ),
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
    """The version of the NCCL that is found, from 2.18 on; 0: there is none."""
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


_GPUS: dict[str, Callable[[Any], int]] = {
    "torch": lambda torch: torch.cuda.device_count(),
    "tensorflow": lambda tf: len(tf.config.list_physical_devices("GPU")),
    "mxnet": lambda mx: mx.context.num_gpus(),
}


def gpu_available(framework: str) -> bool:
    """Whether the framework is there and sees a GPU."""
    name = framework.rsplit(".", 1)[-1]
    try:
        return name in _GPUS and _GPUS[name](importlib.import_module(name)) > 0
    except ImportError:
        return False


def rocm_built() -> bool:
    """Whether tensors of ROCm devices are taken."""
    return bool(PROBES["rocm_built"].answer())
