# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator and TorchModel."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from pyspark import cloudpickle

from .. import columns, session
from ..backend import Backend
from ..columns import Metadata, Written
from ..estimator import HorovodEstimator, HorovodModel
from ..rows import dense
from .trainer import Task, as_list, shaped, train, unpacked

PREDICTED_ROWS = 256  # that a model gets at a time in transform()


def listed(value: Any, count: int, name: str) -> list[Any]:
    """One for each of count labels; a single one stands for all."""
    if value is None:
        return []
    found = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(found) == 1:
        found *= count
    if len(found) != count:
        raise ValueError(f"{name} has {len(found)} elements for {count} label columns")
    return found


def rebound(model: Any, optimizer: Any) -> Any:
    """The optimizer, of this model: one over other parameters is made anew, with its state.

    So it is after a model was loaded or replaced: parameters count by their order.
    """
    own = {id(parameter) for parameter in model.parameters()}
    if all(id(one) in own for group in optimizer.param_groups for one in group["params"]):
        return optimizer
    state, parameters = optimizer.state_dict(), list(model.parameters())
    count = sum(len(group["params"]) for group in state["param_groups"])
    if count != len(parameters):
        raise ValueError(
            f"the optimizer has {count} parameters that are not the model's, which has "
            f"{len(parameters)}: make it of model.parameters()"
        )
    groups = [
        {**group, "params": [parameters[i] for i in group["params"]]}
        for group in state["param_groups"]
    ]
    made = type(optimizer)(groups, **optimizer.defaults)
    made.load_state_dict(state)
    return made


class TorchEstimator(HorovodEstimator):
    """Trains a torch.nn.Module on a DataFrame: fit(df) returns a TorchModel.

    Parameters by name, as Horovod has them: docs/estimators.md says what each does.
    """

    # In a checkpoint.
    _kept = frozenset(("model", "optimizer", "epoch", "epochs", "seed", "history"))

    def __init__(self, **given: Any) -> None:
        super().__init__(given)

    def getOptimizer(self) -> Any:
        """Of the model as it is now."""
        model, optimizer = self._get("model"), self._get("optimizer")
        return optimizer if model is None or optimizer is None else rebound(model, optimizer)

    def _check(self) -> None:
        super()._check()
        if isinstance(self._get("model"), torch.jit.ScriptModule):
            raise TypeError("a TorchScript model cannot be sent to ranks: give the module it is of")
        if self._get("optimizer") is None:
            raise ValueError("the parameter optimizer is missing")
        if self._get("loss") is None and self._get("loss_constructors") is None:
            raise ValueError("the parameter loss is missing")

    def _load_checkpoint(self, run_id: str) -> dict[str, Any]:
        store = self._get("store")
        path = store.get_checkpoint_file(run_id)
        data, state, cause = store.read(path), None, None
        try:
            state = unpacked(data)
        except Exception as error:  # whatever torch makes of a file that it has not written
            cause = error
        if not isinstance(state, dict) or not state.keys() >= self._kept:
            name = f"{type(self).__module__.rpartition('.')[0]}.{type(self).__name__}"
            raise ValueError(
                f"{path} is no checkpoint of a {name}: give another run_id, or remove it"
            ) from cause
        return state

    def _load(self, model: Any, state: dict[str, Any], run_id: str) -> None:
        try:
            model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise ValueError(
                f"the checkpoint of run '{run_id}' is of another model, so give another run_id: "
                f"{error}"
            ) from error

    def _task(self, found: Written, run_id: str, state: dict[str, Any] | None) -> Task:
        labels = self._get("label_cols")
        model, optimizer = self._get("model"), self.getOptimizer()
        first, history, seed = 0, [], self._get("random_seed")
        if state is not None:
            model, optimizer = copy.deepcopy((model, optimizer))
            self._load(model, state, run_id)
            optimizer.load_state_dict(state["optimizer"])
            if state["epoch"] < state["epochs"]:  # it was ended in the middle
                first, history = state["epoch"], state["history"]
                seed = state["seed"] if seed is None else seed
        return Task(
            model=model,
            optimizer=optimizer,
            losses=listed(self._get("loss"), len(labels), "loss"),
            loss_constructors=listed(
                self._get("loss_constructors"), len(labels), "loss_constructors"
            ),
            loss_weights=self._get("loss_weights") or [1 / len(labels)] * len(labels),
            metrics=self._get("metrics"),
            features=self._get("feature_cols"),
            labels=labels,
            weight=self._get("sample_weight_col"),
            input_shapes=self._get("input_shapes"),
            label_shapes=self._get("label_shapes"),
            train=found.train,
            val=found.val,
            batch_size=self._get("batch_size"),
            val_batch_size=self._get("val_batch_size") or self._get("batch_size"),
            epochs=self._get("epochs"),
            first_epoch=first,
            train_steps=self._get("train_steps_per_epoch"),
            val_steps=self._get("validation_steps_per_epoch"),
            shuffle=self._get("shuffle"),
            window_rows=self._get("shuffle_buffer_size"),
            cache=self._get("inmemory_cache_all"),
            seed=secrets.randbits(32) if seed is None else seed,
            change=self._get("transformation_fn"),
            compression=self._get("gradient_compression"),
            passes=self._get("backward_passes_per_step"),
            minibatch=self._get("train_minibatch_fn"),
            use_gpu=self._get("use_gpu"),
            verbose=self._get("verbose"),
            store=self._get("store"),
            run_id=run_id,
            history=history,
        )

    def _begin(self) -> tuple[str, dict[str, Any] | None]:
        """The run's name, and its checkpoint, if there is one."""
        run_id = self._get("run_id") or self._new_run_id()
        if not self._has_checkpoint(run_id):
            return run_id, None
        state = self._load_checkpoint(run_id)
        if self._get("verbose"):
            print(f"run {run_id} goes on after {state['epoch']} epochs", flush=True)
        return run_id, state

    def _train(self, backend: Backend, found: Written) -> TorchModel:
        run_id, state = self._begin()
        task = self._task(found, run_id, state)
        if state is None or task.first_epoch < task.epochs:
            with self._told_how_to_resume(run_id):
                saved = backend.run(train, args=(self._pickled(task),), env={})[0]
            state = unpacked(saved)
        return self._model(state, run_id, found.metadata)

    def _model(self, state: dict[str, Any], run_id: str, metadata: Metadata) -> TorchModel:
        model, optimizer = copy.deepcopy((self._get("model"), self.getOptimizer()))
        model.load_state_dict(state["model"])
        if "optimizer" in state:
            optimizer.load_state_dict(state["optimizer"])
        return TorchModel(
            history=state["history"],
            model=model.eval(),
            optimizer=optimizer,
            feature_columns=self._get("feature_cols"),
            label_columns=self._get("label_cols"),
            input_shapes=self._get("input_shapes"),
            run_id=run_id,
            _metadata=metadata,
            loss=self._get("loss"),
            loss_constructors=self._get("loss_constructors"),
        )


class TorchModel(HorovodModel):
    """Adds what the model says of each row. getModel() is the model, getHistory() its training."""

    def getOptimizer(self) -> Any:
        """Of the model as it is now."""
        model, optimizer = self.getOrDefault("model"), self.getOrDefault("optimizer")
        return optimizer if model is None or optimizer is None else rebound(model, optimizer)

    def _transform(self, df: Any) -> Any:
        from pyspark.sql import functions as f

        session.match_workers()
        features, labels = self.getOrDefault("feature_columns"), self.getOrDefault("label_columns")
        outputs = self.getOutputCols()
        columns.check(df.schema, features, False)
        for name in outputs:
            if name in df.columns:
                raise ValueError(f"the DataFrame has a column '{name}' already: setOutputCols()")
        shapes = self.getOrDefault("input_shapes") or [None] * len(features)
        model = copy.deepcopy(self.getOrDefault("model")).eval()
        sizes = self._sizes(model, features, shapes)
        if not len(sizes) == len(outputs) == len(labels):
            raise ValueError(
                f"{len(labels)} label columns, {len(outputs)} output columns, {len(sizes)} outputs "
                "of the model: there must be as many of each"
            )
        taken = [
            columns.as_array(name, df.schema[name].dataType).alias(f"f{i}")
            for i, name in enumerate(features)
        ]
        predicted = _predictor(model, features, shapes, sizes)(f.struct(*taken))
        column = f"halay_{secrets.token_hex(8)}"
        added = df.withColumn(column, predicted)
        kinds = [self._kind(df, label, size) for label, size in zip(labels, sizes)]
        made = [
            _output(f"{column}.o{i}", kind).alias(name)
            for i, (name, kind) in enumerate(zip(outputs, kinds))
        ]
        return added.select(*map(columns.named, df.columns), *made)

    def _sizes(self, model: Any, features: Sequence[str], shapes: Sequence[Any]) -> list[int]:
        """Elements of each output for a row, by a row of zeros."""
        metadata = self.getOrDefault("_metadata")
        rows = []
        for name, shape in zip(features, shapes):
            size = (metadata.get(name) or {}).get("shape") or 1
            row = torch.zeros((1, size) if size > 1 else 1)
            if shape is not None:
                row = torch.zeros(1, abs(int(torch.tensor(shape).prod())))
            rows.append(shaped(row, shape))
        with torch.no_grad():
            return [output.numel() for output in as_list(model(*rows))]

    def _kind(self, df: Any, label: str, size: int) -> Any:
        """Spark's type of an output: that of the label, or a vector if there are more elements."""
        from pyspark.ml.linalg import VectorUDT
        from pyspark.sql import types

        known = (self.getOrDefault("_metadata").get(label) or {}).get("spark_data_type")
        if known is None and label in df.columns:
            known = df.schema[label].dataType
        is_number = isinstance(known, types.NumericType)
        if size > 1 or isinstance(known, (VectorUDT, types.ArrayType)):
            return VectorUDT()
        return known if is_number else types.DoubleType()


def _output(name: str, kind: Any) -> Any:
    from pyspark.ml.functions import array_to_vector
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import functions as f
    from pyspark.sql import types

    if isinstance(kind, VectorUDT):
        return array_to_vector(f.col(name))
    value = f.element_at(f.col(name), 1)
    return (f.rint(value) if isinstance(kind, types.IntegralType) else value).cast(kind)


def _predictor(model: Any, features: Sequence[str], shapes: Sequence[Any], sizes: list[int]) -> Any:
    """A pandas UDF of the feature columns: a struct with an array of doubles for each output."""
    import pandas
    from pyspark.sql.functions import pandas_udf

    pickled = bytes(cloudpickle.dumps(model))
    kind = ", ".join(f"o{i} array<double>" for i in range(len(sizes)))

    def predict(batches: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        import pickle

        import pyarrow

        own = pickle.loads(pickled)
        for batch in batches:
            inputs = [
                dense(pyarrow.Array.from_pandas(batch[f"f{i}"]), name).float()
                for i, name in enumerate(features)
            ]
            made: list[list[Any]] = [[] for _ in sizes]
            for at in range(0, len(inputs[0]), PREDICTED_ROWS):
                part = [
                    shaped(one[at : at + PREDICTED_ROWS], shape)
                    for one, shape in zip(inputs, shapes)
                ]
                count = len(inputs[0][at : at + PREDICTED_ROWS])
                with torch.no_grad():
                    found = as_list(own(*part))
                for rows, output in zip(made, found):
                    rows.extend(output.reshape(count, -1).double().numpy())
            yield pandas.DataFrame({f"o{i}": rows for i, rows in enumerate(made)})

    predict.__annotations__ = {
        "batches": Iterator[pandas.DataFrame],
        "return": Iterator[pandas.DataFrame],
    }
    return pandas_udf(predict, kind)
