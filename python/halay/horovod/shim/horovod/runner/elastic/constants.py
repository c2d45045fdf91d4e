# SPDX-License-Identifier: Apache-2.0
"""Texts by Horovod's names."""

RESET_LIMIT_EXCEEDED_MESSAGE = (
    "the ranks have had to meet again, 1 time more than --reset-limit {} allows"
)

__all__ = ["RESET_LIMIT_EXCEEDED_MESSAGE"]
