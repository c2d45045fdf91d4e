# SPDX-License-Identifier: Apache-2.0
"""Programs written for Horovod, unchanged: ``import horovod.torch as hvd`` that is Halay.

The package `horovod` lies in the folder SHIM, which no one finds unless it is asked for:
``halayrun --horovod``, ``HALAY_HOROVOD=1``, or ``python -m halay.horovod script.py``. A Horovod
that is installed is left alone otherwise, and replaced by it for that process when asked for.

This module is imported at the start of the interpreter when HALAY_HOROVOD=1: it must stay small.
"""

from __future__ import annotations

import os
import sys

SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim")

RELEASE = "0.28.1"  # of Horovod, whose interface this is

__all__ = ["RELEASE", "SHIM", "install", "wanted"]


def wanted() -> bool:
    """Whether HALAY_HOROVOD asks for the package `horovod`."""
    return os.environ.get("HALAY_HOROVOD", "") not in ("", "0")


def install() -> None:
    """Makes `import horovod` find Halay's, in this process and in those that it starts."""
    loaded = sys.modules.get("horovod")
    if loaded is not None and not str(getattr(loaded, "__file__", "")).startswith(SHIM):
        raise ImportError(
            f"another horovod is loaded already, from {loaded.__file__}: ask for Halay's before "
            "anything imports horovod"
        )
    if SHIM not in sys.path:
        sys.path.insert(0, SHIM)
    os.environ["HALAY_HOROVOD"] = "1"
    inherited = os.environ.get("PYTHONPATH", "")
    if SHIM not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SHIM, inherited]))
