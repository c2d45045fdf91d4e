# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator and TorchModel."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from ... import _torch_state
from ..backend import Backend
from ..columns import Metadata, Written
from ..estimator import HorovodEstimator, HorovodModel
from ..predicted import Call
from .trainer import Task, as_list, shaped, train, unpacked


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
    _torch_state.load(made, state)
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
        """The optimizer, bound to the parameters of the model as it is now."""
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

    def _read(self, checkpoint: bytes) -> dict[str, Any]:
        return unpacked(checkpoint)

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
        if state is not None:
            model, optimizer = copy.deepcopy((model, optimizer))
            self._load(model, state, run_id)
            _torch_state.load(optimizer, state["optimizer"])
        return Task(
            **self._told(found, run_id, state),
            model=model,
            optimizer=optimizer,
            losses=listed(self._get("loss"), len(labels), "loss"),
            loss_constructors=listed(
                self._get("loss_constructors"), len(labels), "loss_constructors"
            ),
            loss_weights=self._get("loss_weights") or [1 / len(labels)] * len(labels),
            metrics=self._get("metrics"),
            passes=self._get("backward_passes_per_step"),
            minibatch=self._get("train_minibatch_fn"),
            use_gpu=self._get("use_gpu"),
        )

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
            _torch_state.load(optimizer, state["optimizer"])
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
        """The optimizer, bound to the parameters of the model as it is now."""
        model, optimizer = self.getOrDefault("model"), self.getOrDefault("optimizer")
        return optimizer if model is None or optimizer is None else rebound(model, optimizer)

    def _call(self) -> Call:
        model = copy.deepcopy(self.getOrDefault("model")).eval()
        return _Called(model, self.getOrDefault("input_shapes"))


class _Called:
    """The model, of arrays."""

    def __init__(self, model: Any, shapes: Sequence[Any] | None) -> None:
        self.model, self.shapes = model, shapes

    def __call__(self, inputs: list[Any]) -> list[Any]:
        shapes = self.shapes or [None] * len(inputs)
        rows = [shaped(torch.from_numpy(one), shape) for one, shape in zip(inputs, shapes)]
        with torch.no_grad():
            return [output.numpy() for output in as_list(self.model(*rows))]
