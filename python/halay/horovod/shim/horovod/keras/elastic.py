# SPDX-License-Identifier: Apache-2.0
"""The state of a model that is committed, restored and sent to all, and callbacks that keep it."""

from halay.keras.elastic import (
    CommitStateCallback,
    KerasState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
)

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
