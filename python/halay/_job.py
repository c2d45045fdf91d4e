# SPDX-License-Identifier: Apache-2.0
"""HALAY_JOB, "key=value;key=value": what halayrun tells its processes (keys: common/job.h)."""

from __future__ import annotations

import os


def job_value(key: str) -> str | None:
    """None: the launcher says nothing of it, or is another one."""
    pairs = (pair.partition("=") for pair in os.environ.get("HALAY_JOB", "").split(";"))
    return next((value for name, _, value in pairs if name == key and value), None)


def is_alone() -> bool:
    """HALAY_JOB=none: a job of this process alone, whatever launcher started it."""
    return os.environ.get("HALAY_JOB") == "none"
