# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of the engines (docs/decisions/elastic.md#0103): a head beside the engine's
driver, an agent beside each of its workers, and in the agent's processes a function whose value
comes back.

Knows neither Ray nor Spark, and imports nothing that loads the C library.
"""

from .agent import Agent, Ended, Said
from .head import Contact, Head, JobEnded
from .words import LOGGED, MET, RAISED, RETURNED, Failure, Orders, log

__all__ = [
    "LOGGED",
    "MET",
    "RAISED",
    "RETURNED",
    "Agent",
    "Contact",
    "Ended",
    "Failure",
    "Head",
    "JobEnded",
    "Orders",
    "Said",
    "log",
]
