# SPDX-License-Identifier: Apache-2.0
"""What each rank of a TorchEstimator does.

Invariant: all ranks take the same number of steps, and none but the optimizer's reductions and one
sum an epoch go between them.
"""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import torch

from ... import _torch_state
from .. import rows
from ..rows import Batch, Group, Reader

METRIC_STEPS = 100  # between two lines of verbose=2


@dataclass
class Task(rows.Training):
    """All that a rank is told. model and optimizer belong together."""

    model: Any
    optimizer: Any
    losses: list[Any]
    loss_constructors: list[Any]
    loss_weights: list[float]
    metrics: list[list[Any]]
    passes: int
    minibatch: Any
    use_gpu: bool


def shaped(batch: Any, shape: Sequence[int] | None) -> Any:
    """A tensor (rows, ...) as a model takes it. shape: of a row, or with -1 for the rows."""
    if shape is None:
        return batch
    if -1 not in shape and int(np.prod(shape)) == batch[0].numel():
        shape = [-1, *shape]
    return batch.reshape(list(shape))


def as_list(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


class Objective:
    """Losses and metrics of a model's outputs."""

    def __init__(self, task: Task, model: Any, optimizer: Any) -> None:
        made = [make(model=model, optimizer=optimizer) for make in task.loss_constructors]
        self._task, self._losses = task, made or task.losses

    def match(self, outputs: Any, labels: list[Any]) -> tuple[list[Any], list[Any]]:
        """Labels in the shape of the outputs, as far as they have as many elements."""
        outputs = as_list(outputs)
        if self._task.label_shapes:
            return outputs, [
                shaped(label, shape) for label, shape in zip(labels, self._task.label_shapes)
            ]
        return outputs, [
            label.reshape(output.shape) if label.numel() == output.numel() else label
            for output, label in zip(outputs, labels)
        ]

    def loss(self, outputs: list[Any], labels: list[Any], weights: Any) -> Any:
        """The loss of a batch. With weights: the mean over rows of weight times the row's loss."""
        total: Any = 0.0
        for output, label, loss, factor in zip(
            outputs, labels, self._losses, self._task.loss_weights
        ):
            if weights is None:
                value = loss(output, label)
            else:
                each = _each(loss, output, label)
                value = (each.reshape(len(weights), -1).mean(1) * weights).mean()
            total = total + value * factor
        return total

    def metrics(self, outputs: list[Any], labels: list[Any]) -> list[float]:
        """Group by group, label by label."""
        found = []
        for group in self._task.metrics:
            for i, (output, label) in enumerate(zip(outputs, labels)):
                metric = group[0] if len(group) == 1 else group[i]
                found.append(float(torch.as_tensor(metric(output.detach(), label))))
        return found


def _each(loss: Any, output: Any, label: Any) -> Any:
    """The loss of each row."""
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        own: Any = copy.copy(loss)
        own.reduction = "none"
        return own(output, label)
    return loss(output, label, reduction="none")


def minibatch(
    model: Any,
    optimizer: Any,
    match: Callable[..., Any],
    loss_of: Callable[..., Any],
    inputs: list[Any],
    labels: list[Any],
    weights: Any,
    passes: int,
    index: int,
) -> tuple[Any, Any]:
    """Forward and backward of a batch; the optimizer steps before every passes-th, and once more
    after the epoch. Outputs and loss."""
    if index % passes == 0:
        if index:
            optimizer.step()
        optimizer.zero_grad()
    outputs, labels = match(model(*inputs), labels)
    loss = loss_of(outputs, labels, weights)
    (loss / passes).backward()
    return outputs, loss


class _Rank:
    """A rank's training."""

    def __init__(self, task: Task) -> None:
        import halay.torch as hvd

        self._hvd, self._task = hvd, task
        self._device = find_device(hvd, task.use_gpu)
        self._model, self._base = task.model.to(self._device), task.optimizer
        _torch_state.follow_parameters(self._base)
        for group in self._base.param_groups:
            group["lr"] = group["lr"] * hvd.size()
        options = {"compression": task.compression} if task.compression is not None else {}
        self._optimizer = hvd.DistributedOptimizer(
            self._base,
            named_parameters=self._model.named_parameters(),
            backward_passes_per_step=task.passes,
            **options,
        )
        self._objective = Objective(task, self._model, self._optimizer)
        dealt = rows.deal(task.train, hvd.size(), True)
        most = max(rows.rows(own) for own in dealt)
        self._batch = min(task.batch_size, most)
        self._steps = task.train_steps or -(-most // self._batch)
        self._train_rows = reader(task, dealt[hvd.rank()], hvd.rank(), task.shuffle)
        validated = rows.deal(task.val, hvd.size(), False)[hvd.rank()]
        self._val_rows = reader(task, validated, hvd.rank(), False)

    def _prepared(self, batch: Batch) -> tuple[list[Any], list[Any], Any]:
        """Inputs, labels and weights."""
        task = self._task
        shapes = task.input_shapes or [None] * len(task.features)
        inputs = [shaped(batch[name], shape) for name, shape in zip(task.features, shapes)]
        labels = [batch[name] for name in task.labels]
        weights = batch[task.weight].to(self._device) if task.weight else None
        on = self._device
        return [one.to(on) for one in inputs], [one.to(on) for one in labels], weights

    def _mean(self, sums: Any) -> dict[str, Any]:
        """Over all ranks. sums: of weights, of weighted losses, of each weighted metric."""
        count = 2 + sum(len(self._task.labels) for _ in self._task.metrics)
        if sums is None:
            sums = np.zeros(count)
        total = self._hvd.allreduce(torch.from_numpy(sums), op=self._hvd.Sum, name="halay.epoch")
        loss, *values = (total[1:] / total[0]).tolist()
        labels, found = self._task.labels, []
        for i in range(len(self._task.metrics)):
            part = values[i * len(labels) : (i + 1) * len(labels)]
            found.append({f"group_{i}_{name}": one for name, one in zip(labels, part)})
        return {"loss": loss, "all_metrics": found}

    def _say(self, phase: str, epoch: int, step: int, sums: Any) -> None:
        if self._task.verbose > 1 and self._hvd.rank() == 0 and step % METRIC_STEPS == 0:
            print(f"{phase} epoch {epoch} step {step}: loss {sums[1] / sums[0]:g}", flush=True)

    def _train(self, epoch: int) -> dict[str, Any]:
        task, sums = self._task, None
        self._model.train()
        of_batch = task.minibatch or minibatch
        batches = self._train_rows.batches(epoch, self._batch, self._steps)
        for step, batch in enumerate(batches):
            inputs, labels, weights = self._prepared(batch)
            outputs, loss = of_batch(
                self._model,
                self._optimizer,
                self._objective.match,
                self._objective.loss,
                inputs,
                labels,
                weights,
                task.passes,
                step,
            )
            outputs, labels = self._objective.match(outputs, labels)
            found = [1.0, loss.item(), *self._objective.metrics(outputs, labels)]
            sums = np.array(found) + (0 if sums is None else sums)
            self._say("train", epoch, step, sums)
        self._optimizer.step()
        return self._mean(sums)

    def _validate(self, epoch: int) -> dict[str, Any]:
        task, sums = self._task, None
        self._model.eval()
        with torch.no_grad():
            for step, batch in enumerate(
                self._val_rows.batches(epoch, task.val_batch_size, task.val_steps)
            ):
                inputs, labels, weights = self._prepared(batch)
                outputs, labels = self._objective.match(self._model(*inputs), labels)
                found = [self._objective.loss(outputs, labels, weights)]
                found += self._objective.metrics(outputs, labels)
                count = len(batch[task.labels[0]])
                scaled = count * np.array([1.0, *map(float, found)])
                sums = scaled + (0 if sums is None else sums)
                self._say("validation", epoch, step, sums)
        return self._mean(sums)

    def _state(self, epoch: int, history: list[dict[str, Any]]) -> dict[str, Any]:
        """The state for a checkpoint. The learning rate is the user's, for any number of ranks."""
        optimizer = copy.deepcopy(self._base.state_dict())
        for group in optimizer["param_groups"]:
            group["lr"] = group["lr"] / self._hvd.size()
        state = {
            "model": self._model.state_dict(),
            "optimizer": optimizer,
            "epoch": epoch + 1,
            "epochs": self._task.epochs,
            "seed": self._task.seed,
            "history": history,
        }
        found: dict[str, Any] = on_processor(state)
        return found

    def run(self) -> bytes:
        """The checkpoint of the last epoch, on rank 0."""
        task, hvd = self._task, self._hvd
        history, saved = list(task.history), b""
        for epoch in range(task.first_epoch, task.epochs):
            seed_epoch(task.seed, epoch, hvd.rank())
            found: dict[str, Any] = {"epoch": epoch, "train": self._train(epoch)}
            if task.val:
                found["validation"] = self._validate(epoch)
            history.append(found)
            if hvd.rank() != 0:
                continue
            if task.verbose:
                print(found, flush=True)
            saved = packed(self._state(epoch, history))
            if task.store.saving_runs():
                task.store.write(task.store.get_checkpoint_file(task.run_id), saved)
                logs = f"{task.store.get_logs_path(task.run_id)}/history.json"
                task.store.write_text(logs, json.dumps(history, indent=1))
        return saved


def seed_epoch(seed: int, epoch: int, rank: int) -> None:
    """So that a run that goes on in the middle is as one that was never ended."""
    low, high = np.random.SeedSequence([seed, epoch, rank]).generate_state(2)
    torch.manual_seed(int(high) << 32 | int(low))


class Tensors(Reader):
    """Its batches are tensors."""

    def batches(self, epoch: int, size: int, steps: int | None) -> Iterator[Batch]:
        for batch in super().batches(epoch, size, steps):
            yield {name: torch.from_numpy(array) for name, array in batch.items()}


def reader(task: Task, own: list[Group], rank: int, shuffle: bool) -> Reader:
    """The rows of a rank's row groups."""
    return rows.reader(task, own, rank, shuffle, Tensors)


def find_device(hvd: Any, use_gpu: bool) -> Any:
    """The rank's GPU, if all have one."""
    has = use_gpu and torch.cuda.is_available()
    if has:
        from .. import get_available_devices

        own = get_available_devices()
        torch.cuda.set_device(int(own[0]) if own else hvd.local_rank())
    all_have = hvd.allgather_object(has)
    if len(set(all_have)) > 1:
        lacking = [rank for rank, one in enumerate(all_have) if not one]
        raise RuntimeError(
            f"ranks {lacking} have no GPU, the others have: use_gpu=False, or one each"
        )
    return torch.device("cuda" if has else "cpu")


def on_processor(state: Any) -> Any:
    """The same with all tensors in the processor's memory."""
    if isinstance(state, torch.Tensor):
        return state.detach().cpu()
    if isinstance(state, dict):
        return {key: on_processor(value) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(on_processor(value) for value in state)
    return state


def packed(state: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def train(pickled: bytes) -> bytes | None:
    """On each rank: rank 0 returns the checkpoint of the last epoch."""
    import halay.torch as hvd

    hvd.init()
    found = _Rank(pickle.loads(pickled)).run()
    return found if hvd.rank() == 0 else None
