# SPDX-License-Identifier: Apache-2.0
"""What the Estimators share: parameters with Horovod's names, fit(), saving and loading."""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
import uuid
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, TypeVar

from pyspark import cloudpickle
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasOutputCols
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

from . import columns
from .backend import Backend, SparkBackend
from .columns import Written
from .predicted import Call, added
from .session import match_workers

T = TypeVar("T", bound=type)
PICKLED = "halay"  # the file beside Spark ML's metadata


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


class Setting(NamedTuple):
    """A parameter. camel: of its get and set methods, where Horovod's are not those of the name."""

    name: str
    default: Any = None
    convert: Any = None
    camel: str = ""


def declare(*settings: Setting) -> Callable[[T], T]:
    """Gives a class of Params these parameters, with get and set methods."""

    def on(cls: T) -> T:
        defaults = dict(getattr(cls, "_defaults", {}))
        for setting in settings:
            name, default, convert, camel = setting
            camel = camel or "".join(word.capitalize() for word in name.split("_"))

            def get(self: Any, name: str = name) -> Any:
                return self.getOrDefault(name)

            def put(self: Any, value: Any, name: str = name) -> Any:
                return self._set(**{name: value})

            param = Param(Params._dummy(), name, name.replace("_", " ").strip(), convert)
            setattr(cls, name, param)
            setattr(cls, f"get{camel}", get)
            setattr(cls, f"set{camel}", put)
            defaults[name] = default
        cls._defaults = defaults  # type: ignore[attr-defined]
        return cls

    return on


class _Writer(MLWriter):  # type: ignore[misc]
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:
        DefaultParamsWriter.saveMetadata(self.instance, path, self.sc, paramMap={})
        values = {param.name: value for param, value in self.instance._paramMap.items()}
        for name in ("store", "backend"):  # they belong to the program that fits
            values.pop(name, None)
        blob = bytes(cloudpickle.dumps(self.instance._picklable(values)))
        self.sc.parallelize([blob], 1).saveAsPickleFile(f"{path}/{PICKLED}")


class _Reader(MLReader):  # type: ignore[misc]
    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sc)
        instance = self.cls()
        instance._resetUid(metadata["uid"])
        return instance._set(**pickle.loads(self.sc.pickleFile(f"{path}/{PICKLED}").first()))


class Saved(MLWritable, MLReadable):  # type: ignore[misc]
    """save() and load() as Spark ML has them; all but store and backend is kept.

    Models and losses are pickled: who loads them runs what is in the file.
    """

    def _picklable(self, values: dict[str, Any]) -> dict[str, Any]:
        """Parameters in a form that cloudpickle brings back as they are."""
        return values

    def write(self) -> Any:
        return _Writer(self)

    @classmethod
    def read(cls) -> Any:
        return _Reader(cls)


_int, _bool = TypeConverters.toInt, TypeConverters.toBoolean
_strings, _string = TypeConverters.toListString, TypeConverters.toString


def optional(convert: Any) -> Any:
    """A converter of a parameter that may be None."""
    return lambda value: None if value is None else convert(value)


@declare(
    Setting("num_proc"),
    Setting("backend"),
    Setting("store"),
    Setting("model"),
    Setting("optimizer"),
    Setting("loss"),
    Setting("loss_constructors"),
    Setting("loss_weights", None, optional(TypeConverters.toListFloat)),
    Setting("metrics", []),
    Setting("feature_cols", None, optional(_strings)),
    Setting("label_cols", None, optional(_strings)),
    Setting("sample_weight_col", None, optional(_string)),
    Setting("input_shapes"),
    Setting("label_shapes"),
    Setting("validation"),
    Setting("batch_size", 32, _int),
    Setting("val_batch_size", None, optional(_int)),
    Setting("epochs", 1, _int),
    Setting("train_steps_per_epoch", None, optional(_int)),
    Setting("validation_steps_per_epoch", None, optional(_int)),
    Setting("shuffle", True, _bool),
    Setting("shuffle_buffer_size", None, optional(_int), "ShufflingBufferSize"),
    Setting("random_seed", None, optional(_int)),
    Setting("partitions_per_process", 10, _int),
    Setting("inmemory_cache_all", False, _bool, "InMemoryCacheAll"),
    Setting("transformation_fn"),
    Setting("gradient_compression"),
    Setting("backward_passes_per_step", 1, _int),
    Setting("train_minibatch_fn"),
    Setting("callbacks", []),
    Setting("run_id", None, optional(_string)),
    Setting("verbose", 1, _int),
    Setting("use_gpu", True, _bool),
    # Without effect: what they tuned is gone.
    Setting("data_module"),
    Setting("compress_sparse_cols", False, _bool),
    Setting("continuous_cols"),
    Setting("categorical_cols"),
    Setting("transformation_edit_fields"),
    Setting("transformation_removed_fields"),
    Setting("train_reader_num_workers", 2, optional(_int), "TrainReaderNumWorker"),
    Setting("val_reader_num_workers", 2, optional(_int), "ValReaderNumWorker"),
    Setting("reader_pool_type", "thread"),
    Setting("mp_start_method"),
)
class EstimatorParams(Params):  # type: ignore[misc]
    """Horovod's parameters of Estimators (docs/estimators.md says what each does)."""

    _defaults: dict[str, Any]

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self._setDefault(**self._defaults)
        self.setParams(**given)

    def setParams(self, **given: Any) -> Any:
        """Sets parameters by name; None stands for the default."""
        for name in given:
            if name not in self._defaults:
                raise TypeError(f"{type(self).__name__} has no parameter '{name}'")
        if given.get("loss") is not None and given.get("loss_constructors") is not None:
            raise ValueError("loss and loss_constructors exclude each other")
        return self._set(**{name: value for name, value in given.items() if value is not None})


class HorovodEstimator(Estimator, EstimatorParams, Saved):  # type: ignore[misc]
    """fit(): a DataFrame is written into the store, ranks train on it, and it is removed."""

    def _get(self, name: str) -> Any:
        return self.getOrDefault(name)

    def fit_on_parquet(self, params: Any = None, dataset_idx: Any = None) -> Any:
        """Trains on Parquet that is at store.get_train_data_path(dataset_idx), and with
        `validation` at get_val_data_path(dataset_idx), and stays there."""
        own = self.copy(params) if params else self
        own._check()
        found = columns.stored(
            own._get("store"), own._columns(), bool(own._get("validation")), dataset_idx
        )
        return own._train(own._backend(), found)

    def _fit(self, df: Any) -> Any:
        self._check()
        backend = self._backend()
        features = self._get("feature_cols")
        if features is None:  # all others, as Horovod has it
            no_features = {*self._get("label_cols"), self._get("sample_weight_col")}
            no_features.add(self._get("validation") or "")
            own = self.copy()
            own._set(feature_cols=[name for name in df.columns if name not in no_features])
            return own._fit(df)
        with columns.written(
            df,
            self._get("store"),
            self._columns(),
            self._get("validation"),
            backend.num_processes() * self._get("partitions_per_process"),
            self._get("random_seed") or 0,
            self._get("transformation_fn") is not None,
        ) as found:
            self._check_sizes(found)
            return self._train(backend, found)

    def _columns(self) -> list[str]:
        names = [*self._get("feature_cols"), *self._get("label_cols")]
        weight = self._get("sample_weight_col")
        return list(dict.fromkeys([*names, weight] if weight else names))

    def _backend(self) -> Any:
        backend, size = self._get("backend"), self._get("num_proc")
        if backend is None:
            return SparkBackend(size)
        if size is not None:
            raise ValueError("backend and num_proc exclude each other")
        return backend

    def _check(self) -> None:
        """ValueError for parameters that are missing, or do not fit together."""
        for name in ("model", "store", "label_cols"):
            if not self._get(name):
                raise ValueError(f"the parameter {name} is missing")
        if self._get("data_module") is not None:
            raise NotImplementedError("data_module is not there in Halay: rows come by pyarrow")
        least_one = ("batch_size", "epochs", "partitions_per_process", "backward_passes_per_step")
        for name in least_one:
            if self._get(name) < 1:
                raise ValueError(f"{name} must be at least 1, not {self._get(name)}")
        labels = self._get("label_cols")
        for name, count in (
            ("input_shapes", len(self._get("feature_cols") or self._get("input_shapes") or ())),
            ("label_shapes", len(labels)),
            ("loss_weights", len(labels)),
        ):
            value = self._get(name)
            if value is not None and len(value) != count:
                raise ValueError(f"{name} has {len(value)} elements for {count} columns")

    def _inputs(self) -> Sequence[Any]:
        """Shapes of a row of each feature, where they are known."""
        return self._get("input_shapes") or ()

    def _check_sizes(self, found: Written) -> None:
        shapes = {
            **dict(zip(self._get("feature_cols"), self._inputs())),
            **dict(zip(self._get("label_cols"), self._get("label_shapes") or ())),
        }
        if self._get("transformation_fn") is not None:
            return  # only it knows what it makes
        for name, shape in shapes.items():
            size, wanted = found.metadata[name]["shape"], 1
            for one in shape or ():
                wanted *= abs(one)
            if shape is not None and size is not None and size != wanted:
                raise ValueError(
                    f"column '{name}' has {size} elements a row, shape {shape} {wanted}"
                )

    def _new_run_id(self) -> str:
        kind = type(self).__module__.split(".")[2]
        return f"{kind}_{time.strftime('%Y%m%d_%H%M%S')}_{uuid.uuid4().hex[:8]}"

    @contextlib.contextmanager
    def _told_how_to_resume(self, run_id: str) -> Any:
        try:
            yield
        except Exception as error:
            store = self._get("store")
            if store.saving_runs() and store.exists(store.get_checkpoint_file(run_id)):
                words = f"fit() with run_id='{run_id}' goes on after the last finished epoch"
                if hasattr(error, "add_note"):
                    error.add_note(words)
            raise

    def _pickled(self, orders: Any) -> bytes:
        """What ranks are told. TypeError with the name of the parameter that stands in the way."""
        try:
            return bytes(cloudpickle.dumps(orders))
        except Exception as error:
            for param, value in self._paramMap.items():
                if param.name != "backend" and not _can_be_pickled(value):
                    raise TypeError(
                        f"the parameter {param.name} cannot be pickled, and so not be sent to "
                        f"ranks: {error}"
                    ) from error
            raise

    def _has_checkpoint(self, run_id: str) -> bool:
        store = self._get("store")
        return bool(store.saving_runs() and store.exists(store.get_checkpoint_file(run_id)))

    _kept: frozenset[str] = frozenset(("epoch", "epochs", "seed", "history"))  # at least

    def _read(self, checkpoint: bytes) -> dict[str, Any]:
        """With epoch, epochs, seed and history."""
        raise NotImplementedError

    def _checkpoint(self, run_id: str) -> dict[str, Any]:
        store = self._get("store")
        path = store.get_checkpoint_file(run_id)
        data, state, cause = store.read(path), None, None
        try:
            state = self._read(data)
        except Exception as error:  # whatever a framework makes of a file that it has not written
            cause = error
        if not isinstance(state, dict) or not state.keys() >= self._kept:
            name = f"{type(self).__module__.removesuffix('.estimator')}.{type(self).__name__}"
            raise ValueError(
                f"{path} is no checkpoint of a {name}: give another run_id, or remove it"
            ) from cause
        return state

    def _begin(self) -> tuple[str, dict[str, Any] | None]:
        """The run's name, and its checkpoint, if there is one."""
        run_id = self._get("run_id") or self._new_run_id()
        if not self._has_checkpoint(run_id):
            return run_id, None
        state = self._checkpoint(run_id)
        if self._get("verbose"):
            print(f"run {run_id} goes on after {state['epoch']} epochs", flush=True)
        return run_id, state

    def _told(self, found: Written, run_id: str, state: dict[str, Any] | None) -> dict[str, Any]:
        """The fields of rows.Training. state: of the checkpoint from which a run goes on."""
        first, history, seed = 0, [], self._get("random_seed")
        if state is not None and state["epoch"] < state["epochs"]:  # it was ended in the middle
            first, history = state["epoch"], state["history"]
            seed = state["seed"] if seed is None else seed
        return {
            "features": self._get("feature_cols"),
            "labels": self._get("label_cols"),
            "weight": self._get("sample_weight_col"),
            "input_shapes": self._get("input_shapes"),
            "label_shapes": self._get("label_shapes"),
            "train": found.train,
            "val": found.val,
            "batch_size": self._get("batch_size"),
            "val_batch_size": self._get("val_batch_size") or self._get("batch_size"),
            "epochs": self._get("epochs"),
            "first_epoch": first,
            "train_steps": self._get("train_steps_per_epoch"),
            "val_steps": self._get("validation_steps_per_epoch"),
            "shuffle": self._get("shuffle"),
            "window_rows": self._get("shuffle_buffer_size"),
            "cache": self._get("inmemory_cache_all"),
            "seed": secrets.randbits(32) if seed is None else seed,
            "change": self._get("transformation_fn"),
            "compression": self._get("gradient_compression"),
            "verbose": self._get("verbose"),
            "store": self._get("store"),
            "run_id": run_id,
            "history": history,
        }

    def _train(self, backend: Backend, found: Written) -> Any:
        raise NotImplementedError


@declare(
    Setting("history"),
    Setting("model"),
    Setting("optimizer"),
    Setting("loss"),
    Setting("loss_constructors"),
    Setting("feature_columns"),
    Setting("label_columns"),
    Setting("input_shapes"),
    Setting("run_id", None, optional(_string)),
    Setting("_metadata", {}),
)
class HorovodModel(Model, HasOutputCols, Saved):  # type: ignore[misc]
    """A trained model as a transformer: adds a column for each label, LABEL__output by default."""

    _defaults: dict[str, Any]

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._setDefault(**self._defaults)
        if given.get("label_columns"):
            self.setOutputCols([f"{name}__output" for name in given["label_columns"]])
        self.setParams(**given)

    def setParams(self, **given: Any) -> Any:
        return self._set(**{name: value for name, value in given.items() if value is not None})

    def _call(self) -> Call:
        """The model, as the executors call it."""
        raise NotImplementedError

    def _shapes(self) -> Sequence[Any]:
        """The shape of a row of each feature, where they are known."""
        return self.getOrDefault("input_shapes") or ()

    def _transform(self, df: Any) -> Any:
        match_workers()
        return added(
            df,
            self._call(),
            self.getOrDefault("feature_columns"),
            self._shapes(),
            self.getOrDefault("label_columns"),
            self.getOutputCols(),
            self.getOrDefault("_metadata"),
        )

    def setOutputCols(self, value: Sequence[str]) -> Any:
        """The names of the columns that are added, one for each label."""
        return self._set(outputCols=list(value))
