# SPDX-License-Identifier: Apache-2.0
"""States that can be committed, put back and made equal on all ranks; run() uses them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ... import _elastic, _torch_state
from ..._basics import meet_again, rank
from ..._elastic import Result
from ..._elastic import State as State
from ..functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .sampler import ElasticSampler


class ObjectState(_elastic.ObjectState):
    """Python objects, given as keyword arguments and kept as attributes."""

    def __init__(self, **objects: Any) -> None:
        super().__init__(broadcast_object, rank, **objects)


class StateHandler:
    """How a TorchState treats objects of one type."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError


class _DictHandler(StateHandler):
    """Handles a value that has state_dict() and load_state_dict()."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # A copy: an optimizer may take the very tensors that it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_DictHandler):
    def sync(self) -> None:
        found = self.value.state_dict()
        tensors = {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}
        broadcast_parameters(tensors, 0)
        others = {name: one for name, one in found.items() if name not in tensors}
        if others:  # of set_extra_state()
            self.value.load_state_dict(broadcast_object(others, 0), strict=False)
        self.save()


class OptimizerStateHandler(StateHandler):
    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = _torch_state.pack(self.value).copied()

    def restore(self) -> None:
        _torch_state.put(self._saved.copied(), self.value)
        self.value.zero_grad()  # they may be of a step that was not finished

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, 0)
        self.save()


class SamplerStateHandler(_DictHandler):
    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), 0))
        self.save()


Registry = list[tuple[type, type[StateHandler]]]

_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Pairs of a type and its handler; the first that fits is taken."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    global _registry
    _registry = registry


def _handler_of(value: Any) -> StateHandler | None:
    for type_, handler in _registry:
        if isinstance(value, type_):
            return handler(value)
    return None


class TorchState(ObjectState):
    """A model, an optimizer, and any other objects, as attributes.

    Modules, optimizers and ElasticSamplers are kept by their state_dict, others are pickled.
    """

    _handlers: dict[str, StateHandler]

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **objects: Any,
    ) -> None:
        objects.update(model=model, optimizer=optimizer)
        handlers = {name: _handler_of(value) for name, value in objects.items()}
        super().__setattr__("_handlers", {n: h for n, h in handlers.items() if h is not None})
        for name, handler in self._handlers.items():
            super().__setattr__(name, handler.value)
        super().__init__(**{n: v for n, v in objects.items() if n not in self._handlers})

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the state of rank 0, and commits it."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """A function that makes the state equal on all ranks, then calls func(state, ...).

    A HorovodInternalError, as all HalayErrors are, puts the last commit back; the ranks meet anew,
    and func is called again. In a job whose ranks stay the same, that is done once for each commit:
    a second error without one, or a lost rank, is raised. HostsUpdatedInterrupt calls func again
    with the state as it is; in an elastic job the ranks meet anew, and one that was told to leave
    (SIGTERM) ends here, by SystemExit(143). docs/elastic.md says more.
    """
    return _elastic.run_fn(func, meet_again)
