# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic interface, with the meaning of one job whose ranks do not change.

run(), states and the sampler work as in Horovod as long as no rank is lost. Ranks are neither
added nor replaced: when one is lost, run() puts the last commit back and raises the error, so that
the program can save it and the job can be started again.
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
