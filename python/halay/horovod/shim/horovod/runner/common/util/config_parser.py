# SPDX-License-Identifier: Apache-2.0
"""What a command line means as variables of the ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import MutableMapping

from halay.horovod import flags, settings

LOG_LEVELS = list(flags.LOG_LEVELS)
# HOROVOD_TIMELINE = "HOROVOD_TIMELINE" and so on: programs import them to set variables.
globals().update({f"HOROVOD_{name}": f"HOROVOD_{name}" for name in settings.SETTINGS})

__all__ = ["LOG_LEVELS", "set_env_from_args"]


def set_env_from_args(env: MutableMapping[str, str], args: Namespace) -> MutableMapping[str, str]:
    """Adds to env what parse_args() has read; horovodrun does so by itself."""
    env.update(flags.variables(vars(args)))
    return env
