# SPDX-License-Identifier: Apache-2.0
"""halay.spark under Horovod's name."""

from halay.spark import run, run_elastic

__all__ = ["run", "run_elastic"]
