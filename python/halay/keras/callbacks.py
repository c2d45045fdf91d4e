# SPDX-License-Identifier: Apache-2.0
"""Callbacks for fit(), with Horovod's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Union

from .. import _objects, _session
from .._core import error, lib
from .._process_sets import ProcessSet, global_process_set, members_of
from ._values import broadcast_variables
from ._which import BACKEND, LEGACY, keras, variables_of

_Callback: Any = keras.callbacks.Callback
_ModelCheckpoint: Any = keras.callbacks.ModelCheckpoint

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(_Callback):  # type: ignore[misc]
    """Gives all ranks the weights and the optimizer's state of root_rank when fit() begins.

    On JAX it also raises what a step has failed with, when its epoch ends: fit() may not look.
    local_variables: those that stay as they are. device is Horovod's, and changes nothing.
    """

    def __init__(
        self,
        root_rank: int = 0,
        device: str = "",
        local_variables: Iterable[Any] | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__()
        self.root_rank, self.process_set = root_rank, process_set
        self._local = list(local_variables or ())
        self.broadcast_done = False

    def register_local_var(self, var: Any) -> None:
        """This variable stays as it is."""
        self._local.append(var)

    def _broadcast(self) -> None:
        if self.broadcast_done:
            return
        optimizer = getattr(self.model, "optimizer", None)
        all_ = [*self.model.weights, *(variables_of(optimizer) if optimizer is not None else ())]
        given = [one for one in all_ if not any(one is local for local in self._local)]
        broadcast_variables(given, self.root_rank, self.process_set)
        self.broadcast_done = True

    def on_train_begin(self, logs: Any = None) -> None:
        if not LEGACY:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if LEGACY:  # which makes its variables with the first batch
            self._broadcast()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if BACKEND == "jax" and not LEGACY:
            import jax

            jax.block_until_ready(logs)


class MetricAverageCallback(_Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over the ranks. It stands before callbacks that use them."""

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is None:
            return
        own = {name: float(value) for name, value in sorted(logs.items()) if _is_number(value)}
        all_ = _objects.allgather_object(own, process_set=self.process_set)
        for rank, theirs in zip(members_of(self.process_set).ranks, all_):
            if theirs.keys() != all_[0].keys():
                raise error(
                    lib.HALAY_EMISMATCH,
                    f"MetricAverageCallback: metrics differ between ranks: {list(all_[0])} and, on "
                    f"rank {rank}, {list(theirs)}",
                )
        for name in own:
            logs[name] = sum(one[name] for one in all_) / len(all_)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return False
    try:
        float(value)  # a ValueError is that of a step that has failed
    except TypeError:
        return False
    return True


Multiplier = Union[float, Callable[[float], float]]


class LearningRateScheduleCallback(_Callback):  # type: ignore[misc]
    """Sets the learning rate to initial_lr * multiplier(epoch) from start_epoch to end_epoch.

    A multiplier that is a number is raised to the power of epoch - start_epoch. staircase: at the
    beginning of epochs; otherwise with each batch, epoch being a fraction, which needs
    steps_per_epoch where fit() does not know it. On JAX, whose steps keep the rate inside, it is
    set with each epoch in both cases; keras.optimizers.schedules go with each batch everywhere.
    momentum_correction is Horovod's, and changes nothing: a step has its momentum compiled in.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Multiplier,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase, self.steps_per_epoch = staircase, steps_per_epoch
        self.multiplier: Callable[[float], float] = (
            multiplier
            if callable(multiplier)
            else lambda epoch: multiplier ** (epoch - start_epoch)
        )
        self.current_epoch = 0
        self._by_batch = not staircase and BACKEND != "jax"

    def on_train_begin(self, logs: Any = None) -> None:
        if self.staircase or self.steps_per_epoch:
            return
        self.steps_per_epoch = self.params.get("steps")
        if not self.steps_per_epoch:
            raise ValueError(f"{type(self).__name__}: give steps_per_epoch; fit() does not know it")

    def _is_on(self) -> bool:
        after = self.end_epoch is not None and self.current_epoch >= self.end_epoch
        return self.current_epoch >= self.start_epoch and not after

    def _set(self, epoch: float) -> None:
        rate = self.initial_lr * self.multiplier(epoch)
        try:
            self.model.optimizer.learning_rate = rate
        except TypeError as cause:
            raise ValueError(
                f"{type(self).__name__}: the optimizer has a schedule of its own for its learning "
                "rate; give it a number"
            ) from cause

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch
        if self._is_on() and not self._by_batch:
            self._set(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._is_on() and self._by_batch:
            assert self.steps_per_epoch
            self._set(self.current_epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        rate = self.model.optimizer.learning_rate
        return float(rate.numpy() if LEGACY else keras.ops.convert_to_numpy(rate))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size to initial_lr in the first epochs.

    initial_lr: that for all ranks together, as 0.01 * hvd.size(). The others are as of
    LearningRateScheduleCallback.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The last batch of an epoch is to have a round number.
            epoch += 1.0 / self.steps_per_epoch if self._by_batch and self.steps_per_epoch else 0.0
            size = _session.session().size
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        last = self.end_epoch is not None and epoch == self.end_epoch - 1
        if last and self.verbose > 0 and _session.session().rank == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate is warmed up, at {self._rate():g}")


class BestModelCheckpoint(_ModelCheckpoint):  # type: ignore[misc]
    """Saves the model where it is the best so far; rank 0 does, and the others write nothing."""

    def __init__(
        self,
        filepath: Any = "best_model.keras",
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        super().__init__(
            filepath,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=False,
            mode=mode,
            save_freq=save_freq,
        )

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if not _session.is_initialized() or _session.session().rank == 0:
            super()._save_model(*args, **kwargs)
