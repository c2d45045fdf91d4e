# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic interface (docs/elastic.md).

In an elastic job (halayrun --min-np) run() goes on with the ranks that are left when one is lost,
and with those that have joined. In any other job the ranks stay the same: when one is lost, run()
puts the last commit back and raises the error, so that the program can save it.
"""

from .sampler import ElasticSampler
from .state import (
    ModelStateHandler,
    ObjectState,
    OptimizerStateHandler,
    SamplerStateHandler,
    State,
    StateHandler,
    TorchState,
    get_handler_registry,
    run,
    set_handler_registry,
)

__all__ = [
    "ElasticSampler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]
