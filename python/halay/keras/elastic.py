# SPDX-License-Identifier: Apache-2.0
"""Elastic training with Keras (docs/elastic.md): the state of a model, callbacks that commit it."""

from __future__ import annotations

from typing import Any, Callable

from .. import _elastic, _objects
from .._basics import meet_again, rank
from .._elastic import State as State
from ._values import broadcast_variables
from ._which import keras, numpy_of, variables_of

_Callback: Any = keras.callbacks.Callback

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes the state equal on all ranks, then calls func(state, ...); again when
    ranks were lost or have joined (docs/elastic.md)."""
    return _elastic.run_wrapped(func, meet_again)


class KerasState(_elastic.ObjectState):
    """A model and its optimizer, and Python objects given as keyword arguments.

    The model has to be built. optimizer: if it is not the one that the model was compiled with.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **objects: Any
    ) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model has no variables yet: model.build(input_shape) first")
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        build = getattr(self.optimizer, "build", None)
        if build is not None:  # all ranks need as many variables
            build(model.trainable_variables)
        self._values: list[Any] = []
        self._save_variables()
        super().__init__(_objects.broadcast_object, rank, **objects)

    def _variables(self) -> list[Any]:
        attach = getattr(self.model, "jax_state_sync", None)  # in fit() on JAX they are elsewhere
        if attach is not None:
            attach()
        own = variables_of(self.optimizer) if self.optimizer is not None else []
        return [*self.model.weights, *own]

    def _save_variables(self) -> None:
        self._values = [numpy_of(variable).copy() for variable in self._variables()]

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        own = variables_of(self.optimizer) if self.optimizer is not None else []
        for variable, value in zip([*self.model.weights, *own], self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks what rank 0 has, and commits it."""
        broadcast_variables(self._variables(), 0)
        self._save_variables()
        super().sync()


class CommitStateCallback(_Callback):  # type: ignore[misc]
    """Commits the state every batches_per_commit batches, and at the end of each epoch.

    The last batch of an epoch is committed as its end, where fit() knows how many there are.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state, self.batches_per_commit = state, batches_per_commit
        self._left = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self._left = self.batches_per_commit  # on all ranks, whenever they have met

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if self._left > 0:
            return
        self._left = self.batches_per_commit
        if batch + 1 != self.params.get("steps"):
            self.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.commit()

    def commit(self) -> None:
        """What is done then: more in a class that is made of this one."""
        self.state.commit()


class UpdateBatchStateCallback(_Callback):  # type: ignore[misc]
    """Keeps state.batch: how many batches of the epoch are done, over all calls of fit().

    An epoch that was interrupted goes on where it was with
    ``fit(..., steps_per_epoch=steps - state.batch)``. It stands before CommitStateCallback.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._first = state.batch

    def on_train_begin(self, logs: Any = None) -> None:
        self._first = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self._first + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._first = self.state.batch = 0


class UpdateEpochStateCallback(_Callback):  # type: ignore[misc]
    """Keeps state.epoch, counted over all calls of fit(). It stands before CommitStateCallback."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._before = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._before is None:  # 0 with fit(initial_epoch=state.epoch)
            self._before = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        assert self._before is not None
        self.state.epoch = self._before + epoch + 1
