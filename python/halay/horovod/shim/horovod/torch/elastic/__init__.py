# SPDX-License-Identifier: Apache-2.0
"""Elastic training's interface."""

from halay.horovod import surface as _surface

_members = _surface.fetch(
    ["halay.torch.elastic", "halay.torch.elastic.state", "halay.torch.elastic.sampler"],
    ["ElasticSampler", "TorchState", "run"],
    "horovod.torch.elastic",
)
globals().update(_members)

__all__ = [*_members]
