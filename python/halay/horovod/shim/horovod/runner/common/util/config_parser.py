# SPDX-License-Identifier: Apache-2.0
"""What a command line means as variables of the ranks."""

from argparse import Namespace

__all__ = ["set_env_from_args"]


def set_env_from_args(env: dict[str, str], args: Namespace) -> dict[str, str]:
    """Adds to env what parse_args() has read; run_elastic() does so by itself."""
    env.update(args.env)
    return env
