# SPDX-License-Identifier: Apache-2.0
"""States that are committed, restored and sent to all."""

from halay.horovod import surface as _surface

_members = _surface.fetch(
    "halay.tensorflow.elastic",
    [
        "HorovodInternalError",
        "HostsUpdatedInterrupt",
        "ObjectState",
        "State",
        "TensorFlowKerasState",
        "TensorFlowState",
        "run",
    ],
    "horovod.tensorflow.elastic",
)
globals().update(_members)

__all__ = [*_members]
