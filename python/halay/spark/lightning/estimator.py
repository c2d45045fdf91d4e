# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator for LightningModules."""

from __future__ import annotations

import copy
import importlib
from typing import Any

from .. import torch as plain
from ..backend import Backend
from ..columns import Written
from ..estimator import HorovodEstimator, Setting, declare
from ..torch.trainer import unpacked
from .trainer import Trained, train

MIN_PL_VERSION = "2.0"
PACKAGES = ("pytorch_lightning", "lightning.pytorch")  # two copies of the same classes


def package_of(model: Any) -> str:
    """Whose LightningModule it is; empty if it is none."""
    for cls in type(model).__mro__:
        for name in PACKAGES:
            if cls.__name__ == "LightningModule" and cls.__module__.startswith(f"{name}."):
                return name
    return ""


def installed() -> str:
    """The package that is there."""
    for name in PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return name
    raise ModuleNotFoundError("PyTorch Lightning is not installed: pip install lightning")


@declare(
    Setting("num_gpus", camel="NumGPUs"),
    Setting("logger"),
    Setting("log_every_n_steps", 50),
    Setting("profiler"),
    Setting("trainer_args"),
    Setting("terminate_on_nan", False),
    # Without effect: what they tuned is gone.
    Setting("loader_num_epochs"),
    Setting("debug_data_loader", False),
    Setting("train_async_data_loader_queue_size"),
    Setting("val_async_data_loader_queue_size"),
)
class TorchEstimator(plain.TorchEstimator):
    """Trains a LightningModule on a DataFrame by Lightning's Trainer: fit(df) returns a TorchModel.

    The module's steps get a batch as a dict: a tensor (rows, ...) of float32 for each column.
    A plain torch.nn.Module with optimizer and loss is trained, too.
    """

    _kept = frozenset(("model", "lightning", "epoch", "epochs", "seed", "size", "history"))

    def _check(self) -> None:
        if not package_of(self._get("model")):
            super()._check()
            return
        HorovodEstimator._check(self)
        for name in ("optimizer", "loss", "loss_constructors", "loss_weights"):
            if self._get(name):
                raise ValueError(f"{name} is the LightningModule's own: leave the parameter out")

    def _train(self, backend: Backend, found: Written) -> Any:
        run_id, state = self._begin()
        if state is not None:
            self._load(copy.deepcopy(self._get("model")), state, run_id)
        task = self._task(found, run_id, None)
        names = ("num_gpus", "logger", "log_every_n_steps", "profiler", "terminate_on_nan")
        own = {name: self._get(name) for name in (*names, "trainer_args", "callbacks")}
        how = Trained(package_of(self._get("model")) or installed(), own, state)
        if state is not None and state["epoch"] >= state["epochs"]:
            task.epochs += state["epoch"]
        elif state is not None and self._get("random_seed") is None:
            task.seed = state["seed"]
        pickled = self._pickled((task, how))
        with self._told_how_to_resume(run_id):
            saved = backend.run(train, args=(pickled,), env={})[0]
        return self._model(unpacked(saved), run_id, found.metadata)
