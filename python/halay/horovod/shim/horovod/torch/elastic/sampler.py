# SPDX-License-Identifier: Apache-2.0
"""ElasticSampler."""

from halay.horovod import surface as _surface

_members = _surface.fetch(
    ["halay.torch.elastic.sampler", "halay.torch.elastic"],
    ["ElasticSampler"],
    "horovod.torch.elastic.sampler",
)
globals().update(_members)

__all__ = [*_members]
