# SPDX-License-Identifier: Apache-2.0
"""Estimator and transformer of Spark ML for models of Keras 3 and tf_keras (docs/estimators.md).

A model goes from place to place as Keras's own file, in bytes; a checkpoint is such a file with one
more member, which Keras does not look at. Keras is imported where it is needed: an executor that is
asked what a model says learns only then which Keras it is.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np
from pyspark import cloudpickle

from . import rows
from .backend import Backend
from .columns import Written
from .estimator import HorovodEstimator, HorovodModel, Setting, declare
from .predicted import Call
from .rows import Batch, Reader

__all__ = ["KerasEstimator", "KerasModel"]

STATE = "halay.json"  # in a checkpoint


def _hvd() -> Any:
    return importlib.import_module("halay.keras")


def _keras() -> Any:
    return importlib.import_module("halay.keras._which").keras


def _settings() -> dict[str, str]:
    """Variables of a process that shall have the same Keras as this one."""
    which = importlib.import_module("halay.keras._which")
    return {"KERAS_BACKEND": which.BACKEND, "TF_USE_LEGACY_KERAS": "1" if which.LEGACY else "0"}


def _bytes_of(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def _model_of(data: bytes, custom_objects: Any, load: Callable[..., Any] | None = None) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(data)
        load = load or _keras().models.load_model
        with warnings.catch_warnings():  # of an optimizer that has made no step yet
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            return load(str(path), custom_objects=dict(custom_objects or {}), safe_mode=False)


def _with_state(data: bytes, state: dict[str, Any]) -> bytes:
    file = io.BytesIO(data)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(STATE, json.dumps(state))
    return file.getvalue()


def _row_shapes(tensors: Any) -> list[list[int] | None]:
    """The shape of a row of each; None where it is not known."""
    shapes = [tuple(tensor.shape)[1:] for tensor in tensors or ()]
    return [None if None in shape else [-1, *map(int, shape)] for shape in shapes]


def _shaped(batch: Any, shape: Sequence[int] | None) -> Any:
    """An array (rows, ...) in this shape of a row, as far as it has as many elements."""
    row = None if shape is None else [abs(one) for one in shape if one != -1]
    if row is None or int(np.prod(row)) != batch[0].size:
        return batch
    return batch.reshape(len(batch), *row)


def _scale(model: Any, factor: float) -> float | None:
    """The learning rate, multiplied. None, and nothing is changed, where it is a schedule's."""
    rate = model.optimizer.learning_rate
    try:
        scaled = float(rate.numpy() if hasattr(rate, "numpy") else rate) * factor
        model.optimizer.learning_rate = scaled
    except TypeError:
        return None
    return scaled


@dataclass
class Task(rows.Training):
    """All that a rank is told. model: compiled, in bytes."""

    model: bytes
    custom_objects: dict[str, Any]
    outputs: list[Any]  # shapes of their rows
    callbacks: list[Any]
    checkpoint_callback: Any


def _data(keras: Any, task: Task, own: Reader, size: int, steps: int) -> Any:
    """What fit() reads: batches by number, though they come one after the other."""
    shapes, labels = task.input_shapes, task.label_shapes or task.outputs

    class Batches(keras.utils.Sequence):  # type: ignore[misc]
        epoch = task.first_epoch

        def __init__(self) -> None:
            super().__init__()
            self._next: tuple[int, int] | None = None

        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> Any:
            if self._next != (self.epoch, index):  # Keras begins again, or looks ahead
                self._batches = own.batches(self.epoch, size, steps)
                for _ in range(index):
                    next(self._batches)
            self._next = (self.epoch, index + 1)
            return arranged(next(self._batches))

    def arranged(batch: Batch) -> Any:
        x = [_shaped(batch[n], s) for n, s in zip(task.features, shapes or [None] * len(batch))]
        y = [_shaped(batch[n], s) for n, s in zip(task.labels, labels or [None] * len(batch))]
        found = [x[0] if len(x) == 1 else tuple(x), y[0] if len(y) == 1 else tuple(y)]
        return (*found, batch[task.weight].reshape(-1)) if task.weight else tuple(found)

    return Batches()


def _loader(keras: Any, hvd: Any, task: Task, validates: bool) -> Any:
    """All ranks take the same number of full batches; who has fewer rows begins again."""
    groups = task.val if validates else task.train
    if not groups:
        return None
    dealt = rows.deal(groups, hvd.size(), True)
    most = max(rows.rows(own) for own in dealt)
    size = min(task.val_batch_size if validates else task.batch_size, most)
    steps = (task.val_steps if validates else task.train_steps) or -(-most // size)
    own = rows.reader(task, dealt[hvd.rank()], hvd.rank(), task.shuffle and not validates)
    return _data(keras, task, own, size, steps)


def _keeper(keras: Any, hvd: Any, task: Task, data: Any, saved: list[bytes]) -> Any:
    """The last callback: tells the data the epoch, and on rank 0 saves what there is."""

    class Keeper(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            data.epoch = epoch

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            for name, value in (logs or {}).items():
                task.history.setdefault(name, []).append(float(value))
            if hvd.rank() != 0:
                return
            rate = _scale(self.model, 1 / hvd.size())  # it is the user's, for any number of ranks
            saved[:] = [_with_state(_bytes_of(self.model), _state(task, epoch + 1))]
            if rate is not None:
                _scale(self.model, hvd.size())
            if task.store.saving_runs():
                task.store.write(task.store.get_checkpoint_file(task.run_id), saved[0])
                logs_path = f"{task.store.get_logs_path(task.run_id)}/history.json"
                task.store.write_text(logs_path, json.dumps(task.history, indent=1))

    return Keeper()


def _state(task: Task, epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "epochs": task.epochs, "seed": task.seed, "history": task.history}


def _fit(hvd: Any, task: Task, folder: str) -> bytes:
    """The trained model, on rank 0."""
    keras, rank = _keras(), hvd.rank()
    seed = np.random.SeedSequence([task.seed, task.first_epoch, rank]).generate_state(1)
    keras.utils.set_random_seed(int(seed[0]))
    compression = {} if task.compression is None else {"compression": task.compression}
    load = functools.partial(hvd.load_model, **compression)
    model = _model_of(task.model, task.custom_objects, load)
    rate = _scale(model, hvd.size())
    for callback in task.callbacks:
        if isinstance(callback, hvd.callbacks.LearningRateScheduleCallback) and rate is not None:
            callback.initial_lr = rate
    saved: list[bytes] = []
    data = _loader(keras, hvd, task, False)
    callbacks = [hvd.callbacks.MetricAverageCallback(), *task.callbacks]
    best, path = task.checkpoint_callback, Path(folder) / "best.keras"
    if best is not None and rank == 0:
        best.filepath = str(path)
        callbacks.append(best)
    model.fit(
        data,
        validation_data=_loader(keras, hvd, task, True),
        epochs=task.epochs,
        initial_epoch=task.first_epoch,
        shuffle=False,
        verbose=task.verbose if rank == 0 else 0,
        callbacks=[*callbacks, _keeper(keras, hvd, task, data, saved)],
    )
    if path.exists():
        chosen = _model_of(path.read_bytes(), task.custom_objects)
        _scale(chosen, 1 / hvd.size())
        return _with_state(_bytes_of(chosen), _state(task, task.epochs))
    return saved[0] if saved else b""


def train(pickled: bytes) -> bytes | None:
    """On each rank: rank 0 returns the model, as a checkpoint."""
    import pickle

    hvd = _hvd()
    hvd.init()
    with tempfile.TemporaryDirectory() as folder:
        found = _fit(hvd, pickle.loads(pickled), folder)
    return found if hvd.rank() == 0 else None


class _Packed:
    """Becomes, when it is unpickled, what make(*args) gives."""

    def __init__(self, make: Callable[..., Any], *args: Any) -> None:
        self.made = (make, args)

    def __reduce__(self) -> Any:
        return self.made


def _optimizer_of(settings: dict[str, str], config: Any, custom_objects: Any) -> Any:
    _agree(settings)
    return _keras().optimizers.deserialize(config, custom_objects=custom_objects)


def _model_from(settings: dict[str, str], data: bytes, custom_objects: Any) -> Any:
    _agree(settings)
    return _model_of(data, custom_objects)


def _agree(settings: dict[str, str]) -> None:
    """Has this process the Keras of the other one; RuntimeError where it has another already."""
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    if _settings()["TF_USE_LEGACY_KERAS"] != settings["TF_USE_LEGACY_KERAS"]:
        raise RuntimeError(
            f"the model wants TF_USE_LEGACY_KERAS={settings['TF_USE_LEGACY_KERAS']}, and this "
            "process has loaded the other Keras already: set it for all processes of Spark"
        )


@declare(
    Setting("custom_objects", {}),
    Setting("checkpoint_callback"),
    Setting("backend_env", {}),
    # Without effect: what it tuned is gone.
    Setting("tensorflow_dataset_prefetch_buffer_size", 0),
)
class KerasEstimator(HorovodEstimator):
    """Trains a model of Keras on a DataFrame: fit(df) returns a KerasModel.

    Parameters by name, as Horovod has them: docs/estimators.md says what each does.
    """

    _NOT_OURS = ("loss_constructors", "train_minibatch_fn", "input_shapes")

    def __init__(self, **given: Any) -> None:
        super().__init__(given)

    def _check(self) -> None:
        super()._check()
        model, features = self._get("model"), self._get("feature_cols")
        for name in self._NOT_OURS:
            if self._get(name) is not None:
                raise ValueError(f"{name} is no parameter of KerasEstimator")
        if self._get("backward_passes_per_step") != 1:
            raise ValueError(
                "backward_passes_per_step is no parameter of KerasEstimator: give the optimizer "
                "gradient_accumulation_steps"
            )
        if not isinstance(model, _keras().Model):
            raise ValueError(
                f"the model is no {_keras().__name__}.Model, but a {type(model).__name__}; for one "
                "of tf_keras set TF_USE_LEGACY_KERAS=1"
            )
        if not model.built:
            raise ValueError("the model has no variables yet: give it a keras.Input, or build() it")
        inputs = len(self._inputs())
        if features is not None and inputs and inputs != len(features):
            raise ValueError(f"the model has {inputs} inputs for {len(features)} columns")
        if hasattr(self._get("optimizer"), "_halay"):
            raise ValueError("give the optimizer as it is: fit() makes it a DistributedOptimizer")

    def _inputs(self) -> list[list[int] | None]:
        return _row_shapes(getattr(self._get("model"), "inputs", None))

    def _compiled(self) -> Any:
        """A copy of the model, compiled as the parameters say, else as it is."""
        keras, model = _keras(), self._get("model")
        copied = _model_of(_bytes_of(model), self._get("custom_objects"))
        optimizer, loss = self._get("optimizer"), self._get("loss")
        own = getattr(copied, "optimizer", None)
        if not any((optimizer, loss, self._get("loss_weights"), self._get("metrics"))):
            if own is None:
                raise ValueError("the parameters optimizer and loss are missing")
            return copied
        loss = getattr(model, "loss", None) if loss is None else loss
        if loss is None or (optimizer is None and own is None):
            missing = "loss" if loss is None else "optimizer"
            raise ValueError(f"the parameter {missing} is missing, and the model is not compiled")
        if optimizer is not None and not isinstance(optimizer, str):
            values = [_numpy(one) for one in _variables(optimizer)]
            optimizer = type(optimizer).from_config(optimizer.get_config())
            given = self._get("optimizer")
            if getattr(given, "built", getattr(given, "_built", False)):
                optimizer.build(copied.trainable_variables)
                for variable, value in zip(_variables(optimizer), values):
                    variable.assign(value)
        copied.compile(
            optimizer=keras.optimizers.get(optimizer or own),
            loss=loss,
            loss_weights=self._get("loss_weights"),
            metrics=self._get("metrics"),
        )
        return copied

    def _read(self, checkpoint: bytes) -> dict[str, Any]:
        with zipfile.ZipFile(io.BytesIO(checkpoint)) as archive:
            return {**json.loads(archive.read(STATE)), "model": checkpoint}

    def _task(self, found: Written, run_id: str, state: dict[str, Any] | None) -> Task:
        model = self._get("model")
        told = self._told(found, run_id, state)
        told["history"] = told["history"] or {}
        told["input_shapes"] = self._inputs()
        return Task(
            **told,
            model=_bytes_of(self._compiled()) if state is None else state["model"],
            custom_objects=self._get("custom_objects"),
            outputs=_row_shapes(getattr(model, "outputs", None)),
            callbacks=list(self._get("callbacks")),
            checkpoint_callback=self._get("checkpoint_callback"),
        )

    def _train(self, backend: Backend, found: Written) -> KerasModel:
        run_id, state = self._begin()
        task = self._task(found, run_id, state)
        saved = state["model"] if state is not None else b""
        if state is None or task.first_epoch < task.epochs:
            env = {**_settings(), **self._get("backend_env")}
            if not self._get("use_gpu"):
                env["CUDA_VISIBLE_DEVICES"] = ""
            with self._told_how_to_resume(run_id):
                pickled = bytes(cloudpickle.dumps(task))
                saved = backend.run(train, args=(pickled,), env=env)[0]
        return KerasModel(
            history=self._read(saved)["history"],
            model=_model_of(saved, task.custom_objects),
            feature_columns=task.features,
            label_columns=task.labels,
            custom_objects=task.custom_objects,
            run_id=run_id,
            _metadata=found.metadata,
        )

    def _picklable(self, values: dict[str, Any]) -> dict[str, Any]:
        return _picklable(values, self._get("custom_objects"))


def _variables(optimizer: Any) -> list[Any]:
    return list(importlib.import_module("halay.keras._which").variables_of(optimizer))


def _numpy(variable: Any) -> Any:
    return importlib.import_module("halay.keras._which").numpy_of(variable)


def _picklable(values: dict[str, Any], custom_objects: Any) -> dict[str, Any]:
    """With model and optimizer by Keras's own means: classes of custom_objects are found again."""
    found = dict(values)
    if found.get("model") is not None:
        data = _bytes_of(found["model"])
        found["model"] = _Packed(_model_from, _settings(), data, custom_objects)
    if found.get("optimizer") is not None and not isinstance(found["optimizer"], str):
        config = _keras().optimizers.serialize(found["optimizer"])
        found["optimizer"] = _Packed(_optimizer_of, _settings(), config, custom_objects)
    return found


class _Called:
    """The model, of arrays; it is loaded where it is called first."""

    def __init__(self, data: bytes, custom_objects: Any, shapes: list[Any]) -> None:
        self.data, self.custom_objects, self.shapes = data, custom_objects, shapes
        self.settings, self.model = _settings(), None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "model": None}

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self.model is None:
            self.model = _model_from(self.settings, self.data, self.custom_objects)
        shapes = self.shapes or [None] * len(inputs)
        x = [_shaped(one, shape) for one, shape in zip(inputs, shapes)]
        assert self.model is not None
        found = self.model.predict_on_batch(x[0] if len(x) == 1 else x)
        return list(found) if isinstance(found, (list, tuple)) else [found]


@declare(Setting("custom_objects", {}))
class KerasModel(HorovodModel):
    """Adds what the model says of each row. getModel() is the model, compiled; getHistory() its
    training: lists of numbers by name."""

    def _call(self) -> Call:
        model = self.getOrDefault("model")
        return _Called(_bytes_of(model), self.getOrDefault("custom_objects"), self._shapes())

    def _shapes(self) -> list[list[int] | None]:
        return _row_shapes(getattr(self.getOrDefault("model"), "inputs", None))

    def _picklable(self, values: dict[str, Any]) -> dict[str, Any]:
        return _picklable(values, self.getOrDefault("custom_objects"))
