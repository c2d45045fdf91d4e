# SPDX-License-Identifier: Apache-2.0
"""A function that tests replace. It changes nothing: halayrun starts when --min-np can be had."""

from typing import Any

__all__ = ["_get_min_start_hosts"]


def _get_min_start_hosts(_: Any) -> int:
    return 1
