# SPDX-License-Identifier: Apache-2.0
"""What each rank of a Lightning Estimator does: Lightning's Trainer with its own DDP strategy over
the process group "halay".

To Lightning each rank is a node with one device, so that ranks may be spread unevenly. Invariant:
all ranks have the same number of batches, for validation too, since modules may reduce at any.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import torch

from ... import _session
from ..._engines import meeting_place
from .. import rows
from ..rows import Batch, Group, Reader
from ..torch.trainer import (
    Objective,
    Task,
    find_device,
    on_processor,
    packed,
    reader,
    seed_epoch,
    shaped,
)


class Trained(NamedTuple):
    """package: Lightning's. own: parameters for Lightning. state: of a run that goes on."""

    package: str
    own: dict[str, Any]
    state: dict[str, Any] | None


class Facts(NamedTuple):
    """What a rank knows of itself. address: where torch's store may be, the same for all."""

    rank: int
    size: int
    address: str
    device: Any


class _Batches:
    """A loader: an epoch's batches at a time."""

    def __init__(self, of: Reader, most: int, size: int, steps: int | None) -> None:
        self._of, self._size = of, min(size, most)
        self._steps = steps or -(-most // self._size)
        self.epoch: Callable[[], int] = lambda: 0

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        return self._of.batches(self.epoch(), self._size, self._steps)


def _loader(facts: Facts, task: Task, groups: list[Group], validates: bool) -> _Batches | None:
    if not groups:
        return None
    dealt = rows.deal(groups, facts.size, True)
    most = max(rows.rows(own) for own in dealt)
    own = reader(task, dealt[facts.rank], facts.rank, task.shuffle and not validates)
    if validates:
        return _Batches(own, most, task.val_batch_size, task.val_steps)
    return _Batches(own, most, task.batch_size, task.train_steps)


def _facts(hvd: Any, task: Task, how: Trained) -> Facts:
    """Ends the session: a process has one world at a time, and the next one is Lightning's."""
    hvd.init()
    told = _session.standing()
    host = told.address.rpartition(":")[0].strip("[]") if told is not None else "127.0.0.1"
    address = hvd.broadcast_object(meeting_place(host) if hvd.rank() == 0 else "", root_rank=0)
    device = find_device(hvd, task.use_gpu and how.own["num_gpus"] != 0)
    facts = Facts(hvd.rank(), hvd.size(), address, device)
    hvd.shutdown()
    return facts


def _environment(facts: Facts, lightning: Any) -> Any:
    """Lightning's ClusterEnvironment of these ranks."""
    environments = importlib.import_module(f"{lightning.__name__}.plugins.environments")
    host, _, port = facts.address.rpartition(":")

    class Ranks(environments.LightningEnvironment):  # type: ignore[misc, name-defined]
        creates_processes_externally = True
        main_address = host.strip("[]")
        main_port = int(port)

        def world_size(self) -> int:
            return facts.size

        def global_rank(self) -> int:
            return facts.rank

        def node_rank(self) -> int:
            return facts.rank

        def local_rank(self) -> int:
            return 0

        def teardown(self) -> None:
            pass

    return Ranks()


def _strategy(facts: Facts, task: Task, lightning: Any) -> Any:
    if facts.size == 1:
        return "auto"
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    from ... import distributed

    distributed.register()
    from ...torch.compression import Compression

    halves = task.compression not in (None, Compression.none)
    hook = default_hooks.fp16_compress_hook if halves else None
    strategies = importlib.import_module(f"{lightning.__name__}.strategies")
    return strategies.DDPStrategy(
        cluster_environment=_environment(facts, lightning),
        process_group_backend="halay",
        ddp_comm_hook=hook,
    )


def _follower(facts: Facts, task: Task, how: Trained, lightning: Any, folder: str) -> Any:
    """A callback: seeds, learning rates, checkpoints."""
    state = how.state
    file = os.path.join(folder, "checkpoint")

    class Follower(lightning.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.saved = b""
            goes_on = state is not None and state["epoch"] < state["epochs"]
            self.history = list(state["history"]) if state is not None and goes_on else []

        def on_train_start(self, trainer: Any, module: Any) -> None:
            # As Horovod's strategy did: what a checkpoint has was for the ranks of then.
            factor = facts.size / (state["size"] if state is not None else 1)
            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= factor
            for config in trainer.lr_scheduler_configs:
                scheduler = config.scheduler
                if hasattr(scheduler, "base_lrs"):
                    scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            seed_epoch(task.seed, trainer.current_epoch, facts.rank)

        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int
        ) -> None:
            if how.own["terminate_on_nan"] and outputs is not None:
                loss = float(outputs["loss"] if isinstance(outputs, dict) else outputs)
                if not math.isfinite(loss):
                    raise ValueError(f"the loss is {loss} in epoch {trainer.current_epoch}")

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self.history.append({"epoch": trainer.current_epoch, **metrics})
            self.keep(trainer, module)

        def keep(self, trainer: Any, module: Any) -> None:
            trainer.save_checkpoint(file, weights_only=False)  # by rank 0, while the others wait
            if facts.rank != 0:
                return
            with open(file, "rb") as stream:
                lightnings = torch.frombuffer(bytearray(stream.read()), dtype=torch.uint8)
            found = {
                "lightning": lightnings,
                "model": (
                    module.halay_inner if hasattr(module, "halay_inner") else module
                ).state_dict(),
                "epoch": trainer.current_epoch + 1,
                "epochs": task.epochs,
                "seed": task.seed,
                "size": facts.size,
                "history": self.history,
            }
            self.saved = packed(on_processor(found))
            if task.verbose:
                print(self.history[-1], flush=True)
            if task.store.saving_runs():
                task.store.write(task.store.get_checkpoint_file(task.run_id), self.saved)

    return Follower()


def _module(task: Task, lightning: Any) -> Any:
    """The model, as a LightningModule."""
    if isinstance(task.model, lightning.LightningModule):
        return task.model

    class Plain(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.halay_inner = task.model
            self._objective = Objective(task, task.model, task.optimizer)

        def configure_optimizers(self) -> Any:
            return task.optimizer

        def _loss(self, batch: Batch) -> Any:
            shapes = task.input_shapes or [None] * len(task.features)
            inputs = [shaped(batch[name], shape) for name, shape in zip(task.features, shapes)]
            outputs = self.halay_inner(*inputs)
            outputs, labels = self._objective.match(outputs, [batch[name] for name in task.labels])
            return self._objective.loss(
                outputs, labels, batch[task.weight] if task.weight else None
            )

        def training_step(self, batch: Batch, index: int) -> Any:
            loss = self._loss(batch)
            size = len(batch[task.labels[0]])
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=size)
            return loss

        def validation_step(self, batch: Batch, index: int) -> None:
            size = len(batch[task.labels[0]])
            self.log("val_loss", self._loss(batch), sync_dist=True, batch_size=size)

    return Plain()


def _trainer(
    facts: Facts, task: Task, how: Trained, lightning: Any, folder: str, follower: Any
) -> Any:
    device = facts.device
    callbacks = [*(how.own["callbacks"] or ()), follower]
    checkpoints = [one for one in callbacks if isinstance(one, _checkpoint_class(lightning))]
    for one in checkpoints:
        if one.dirpath is None:
            one.dirpath = folder
    settings: dict[str, Any] = {
        "accelerator": "gpu" if device.type == "cuda" else "cpu",
        "devices": [torch.cuda.current_device()] if device.type == "cuda" else 1,
        "num_nodes": facts.size,
        "strategy": _strategy(facts, task, lightning),
        "max_epochs": task.epochs,
        "callbacks": callbacks,
        "logger": how.own["logger"],
        "log_every_n_steps": how.own["log_every_n_steps"],
        "profiler": how.own["profiler"],
        "accumulate_grad_batches": task.passes,
        "use_distributed_sampler": False,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": bool(checkpoints),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }
    if settings["logger"] is None:  # callbacks want one, LearningRateMonitor for one
        loggers = importlib.import_module(f"{lightning.__name__}.loggers")
        settings["logger"] = loggers.CSVLogger(folder)
    settings.update(how.own["trainer_args"] or {})
    return lightning.Trainer(**settings)


def _checkpoint_class(lightning: Any) -> Any:
    return importlib.import_module(f"{lightning.__name__}.callbacks").ModelCheckpoint


def train(pickled: bytes) -> bytes | None:
    """On each rank: rank 0 returns the checkpoint of the last epoch."""
    import halay.torch as hvd

    task, how = pickle.loads(pickled)
    facts = _facts(hvd, task, how)
    lightning = importlib.import_module(how.package)
    with tempfile.TemporaryDirectory() as folder:
        follower = _follower(facts, task, how, lightning, folder)
        trainer = _trainer(facts, task, how, lightning, folder, follower)
        train_rows = _loader(facts, task, task.train, False)
        assert train_rows is not None
        train_rows.epoch = lambda: int(trainer.current_epoch)
        more: dict[str, Any] = {}
        if how.state is not None:
            more["ckpt_path"] = os.path.join(folder, "former")
            with open(more["ckpt_path"], "wb") as file:
                file.write(how.state["lightning"].numpy().tobytes())
            if "weights_only" in inspect.signature(trainer.fit).parameters:
                more["weights_only"] = False  # the module's own parameters are in it
        trainer.fit(
            _module(task, lightning), train_rows, _loader(facts, task, task.val, True), **more
        )
    return follower.saved if facts.rank == 0 else None
