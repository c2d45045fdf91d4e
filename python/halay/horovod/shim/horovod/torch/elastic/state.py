# SPDX-License-Identifier: Apache-2.0
"""TorchState, and which handler saves and restores objects of which type."""

from halay.horovod import surface as _surface

_members = _surface.fetch(
    ["halay.torch.elastic.state", "halay.torch.elastic"],
    [
        "ModelStateHandler",
        "OptimizerStateHandler",
        "SamplerStateHandler",
        "StateHandler",
        "TorchState",
        "get_handler_registry",
        "set_handler_registry",
    ],
    "horovod.torch.elastic.state",
)
globals().update(_members)

__all__ = [*_members]
