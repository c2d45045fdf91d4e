# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic interface for TensorFlow (docs/elastic.md)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

from .. import _elastic
from .._basics import meet_again, rank
from .._elastic import State as State
from ..errors import HorovodInternalError as HorovodInternalError
from ..errors import HostsUpdatedInterrupt as HostsUpdatedInterrupt
from .functions import broadcast_object, broadcast_variables

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """As halay._elastic.run_fn(); errors of operations are those of the library."""

    @functools.wraps(func)
    def told(state: State, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except tf.errors.OpError as failure:
            ours = _elastic.ours(failure)
            if ours is None:
                raise
            raise ours from failure

    return _elastic.run_fn(told, meet_again)


class ObjectState(_elastic.ObjectState):
    """Python objects, given as keyword arguments and kept as attributes."""

    def __init__(self, **objects: Any) -> None:
        super().__init__(broadcast_object, rank, **objects)


class _Variables:
    """Some variables' values: kept, put back, made equal on all ranks."""

    def __init__(self, variables: Callable[[], Iterable[Any]], session: Any) -> None:
        self._variables, self._session = variables, session
        self._values: list[Any] = []
        self.save()

    def save(self) -> None:
        listed = list(self._variables())
        if tf.executing_eagerly():
            self._values = [tf.identity(variable) for variable in listed]
        elif listed:
            self._values = self._in_session().run(listed)

    def restore(self) -> None:
        for variable, value in zip(self._variables(), self._values):
            if tf.executing_eagerly():
                variable.assign(value)
            else:
                variable.load(value, self._in_session())

    def sync(self) -> None:
        done = broadcast_variables(self._variables(), 0)
        if done is not None:
            self._in_session().run(done)
        self.save()

    def _in_session(self) -> Any:
        found = self._session or tf.compat.v1.get_default_session()
        if found is None:
            raise ValueError("TensorFlowState: in a graph it needs session=, or a default session")
        return found


class TensorFlowState(ObjectState):
    """Variables of TensorFlow, and Python objects given as keyword arguments.

    variables: those to keep; without them all global variables of a TF1-style graph.
    """

    def __init__(self, variables: Any = None, session: Any = None, **objects: Any) -> None:
        listed = list(tf.compat.v1.global_variables() if variables is None else variables)
        self.variables, self.session = listed, session
        self._kept = _Variables(lambda: self.variables, session)
        super().__init__(**objects)

    def save(self) -> None:
        self._kept.save()
        super().save()

    def restore(self) -> None:
        self._kept.restore()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks what rank 0 has, and commits it."""
        self._kept.sync()
        super().sync()


def _variables_of(optimizer: Any) -> list[Any]:
    """A list in Keras 3, a function in older ones."""
    found = optimizer.variables
    return list(found() if callable(found) else found)


class TensorFlowKerasState(ObjectState):
    """A model of Keras and its optimizer, and Python objects given as keyword arguments.

    The model has to be built. optimizer: if it is not the one that the model was compiled with.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **objects: Any
    ) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model has no variables yet: model.build(input_shape) first")
        self.model, self.backend = model, backend
        self.optimizer = optimizer or model.optimizer
        session = None if backend is None or tf.executing_eagerly() else backend.get_session()
        self._build()
        self._kept = _Variables(self._all, session)
        super().__init__(**objects)

    def _build(self) -> None:
        """The optimizer makes its variables with the first step, or now: all ranks need as many."""
        built = getattr(self.optimizer, "built", True)
        if not built and hasattr(self.optimizer, "build"):
            self.optimizer.build(self.model.trainable_variables)

    def _all(self) -> list[Any]:
        return [*self.model.variables, *_variables_of(self.optimizer)]

    def save(self) -> None:
        self._kept.save()
        super().save()

    def restore(self) -> None:
        self._kept.restore()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks what rank 0 has, and commits it."""
        self._kept.sync()
        super().sync()
