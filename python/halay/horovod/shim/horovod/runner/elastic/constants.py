# SPDX-License-Identifier: Apache-2.0
"""Texts by Horovod's names."""

RESET_LIMIT_EXCEEDED_MESSAGE = "the ranks have had to meet again more often than --reset-limit {}"

__all__ = ["RESET_LIMIT_EXCEEDED_MESSAGE"]
