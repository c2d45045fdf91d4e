# SPDX-License-Identifier: Apache-2.0
"""A rank of a training that elastic.py disturbs: elastic_train.py FOLDER.

A small convolutional net learns to tell pictures of ten kinds. Each process adds a line of JSON to
FOLDER/log.PID where the ranks have met, and at each commit. An order in FOLDER/order.PID, "PLACE
WHAT", is obeyed once, when the process comes to that place. The file FOLDER/over ends the training:
rank 0 leaves FOLDER/checkpoint.pt, from which the next job begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any

# Only the compiler needs these, and they take a third of the time that torch takes.
sys.modules["torch._meta_registrations"] = types.ModuleType("torch._meta_registrations")

import torch  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

# An optimizer imports the compiler, which takes as long as all of torch, for these two.
compiler = types.ModuleType("torch._dynamo")
compiler.disable = lambda fn, *_, **__: fn  # type: ignore[attr-defined]
compiler.graph_break = lambda: None  # type: ignore[attr-defined]
sys.modules["torch._dynamo"] = torch._dynamo = compiler  # type: ignore[assignment]

SAMPLES, BATCH, COMMIT_EVERY = 480, 4, 3
PACE_S = 0.04


def pictures() -> TensorDataset:
    """8 x 8, of ten kinds, with noise; one in ten has the wrong label."""
    torch.manual_seed(7)
    kinds = torch.arange(SAMPLES) % 10
    x = torch.randn(10, 1, 8, 8).double()[kinds] + 1.5 * torch.randn(SAMPLES, 1, 8, 8).double()
    return TensorDataset(x, torch.where(torch.rand(SAMPLES) < 0.1, (kinds + 1) % 10, kinds))


def new_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    layers = torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10)
    model = torch.nn.Sequential(*layers).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)


def loss_of(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def hash_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, place: Any) -> str:
    """Of all that a commit holds: parameters, momentum, and how far the epoch has come."""
    parts = [json.dumps(place).encode()]
    for parameter in model.parameters():
        parts.append(parameter.detach().numpy().tobytes())
        momentum = optimizer.state[parameter].get("momentum_buffer")
        if momentum is not None:
            parts.append(momentum.numpy().tobytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()


def save(path: Path, model: torch.nn.Module, optimizer: Any, place: Any) -> None:
    part = path.with_suffix(f".{os.getpid()}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "place": place}, part)  # fmt: skip
    part.rename(path)  # whole, or not there


def load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    found = torch.load(path)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    return found["place"]


class Orders:
    def __init__(self, folder: Path) -> None:
        self.path = folder / f"order.{os.getpid()}"

    def obey(self, at: str) -> None:
        if not self.path.exists():
            return
        place, what = self.path.read_text().split()
        if place != at:
            return
        self.path.rename(self.path.with_name(f"done.{os.getpid()}"))
        if what == "raise":
            raise LookupError("as it was told to")
        if what == "exit":
            sys.exit(3)
        os.kill(os.getpid(), signal.SIGSTOP if what == "stop" else signal.SIGKILL)


class Training:
    def __init__(self, folder: Path, orders: Orders) -> None:
        self.folder, self.orders = folder, orders
        self.data = pictures()
        self.model, self.plain = new_model()
        self.begins = [0, 0]
        checkpoint = folder / "checkpoint.pt"
        if checkpoint.exists():
            self.begins = load(checkpoint, self.model, self.plain)

    def join(self, hvd: Any) -> None:
        """Behind hvd.init(): the others wait for a newcomer from there on."""
        self.hvd = hvd
        self.sampler = hvd.elastic.ElasticSampler(self.data)
        place = dict(zip(("epoch", "processed_num"), self.begins))
        self.sampler.load_state_dict(place)
        self.optimizer = hvd.DistributedOptimizer(self.plain, self.model.named_parameters())
        self.log = (self.folder / f"log.{os.getpid()}").open("a")
        self.world = self.commits = 0

    def place(self) -> list[int]:
        return [self.sampler.epoch, self.sampler.processed_num]

    def begin(self, state: Any) -> None:
        """All ranks have the same state now, and call this."""
        own = torch.tensor([random.SystemRandom().getrandbits(53)])
        self.world = int(self.hvd.broadcast(own, 0, name="world"))
        self.commits, self.steps = 0, 0
        if self.hvd.rank() == 0:
            name = hash_of(self.model, self.optimizer, self.place())
            save(self.folder / f"state-{name}.pt", self.model, self.optimizer, self.place())
        self.note(state, None)

    def note(self, state: Any, loss: float | None) -> None:
        line = {"world": self.world, "commit": self.commits, "rank": self.hvd.rank(),
                "size": self.hvd.size(), "place": self.place(), "steps": self.steps, "loss": loss,
                "hash": hash_of(self.model, self.optimizer, self.place()),
                "time": time.time()}  # fmt: skip
        print(json.dumps(line), file=self.log, flush=True)
        self.commits += 1
        self.steps = 0

    def commit(self, state: Any, loss: float) -> None:
        self.note(state, loss)
        self.orders.obey("commit")
        state.commit()

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, bool]:
        self.orders.obey("step")
        self.optimizer.zero_grad()
        loss = loss_of(self.model, inputs, labels)
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        over = (self.folder / "over").exists() and self.hvd.rank() == 0
        told = torch.stack([loss.detach(), torch.tensor(float(over)).double()])
        mean, over = self.hvd.allreduce(told, name="loss").tolist()
        time.sleep(PACE_S)
        return mean, over > 0

    def run(self, state: Any) -> None:
        self.begin(state)
        over = False
        while not over:
            loss = None
            for number, (inputs, labels) in enumerate(
                DataLoader(self.data, BATCH, sampler=self.sampler)
            ):
                loss, over = self.step(inputs, labels)
                self.sampler.record_batch(number, BATCH)
                if number % COMMIT_EVERY == COMMIT_EVERY - 1 or over:
                    self.commit(state, loss)
                if over:
                    return
            self.sampler.set_epoch(self.sampler.epoch + 1)
            if loss is not None:
                self.commit(state, loss)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    import halay.torch as hvd
    from halay._session import Session

    orders = Orders(folder)
    open_trainer = Session._open_trainer

    def open_trainer_or_obey(*args: Any) -> None:
        orders.obey("meeting")  # behind halay_init, and the others are not through
        open_trainer(*args)

    Session._open_trainer = open_trainer_or_obey  # type: ignore[method-assign]

    class State(hvd.elastic.TorchState):
        def save(self) -> None:
            super().save()
            orders.obey("save")

        def sync(self) -> None:
            orders.obey("sync")
            super().sync()
            orders.obey("synced")

    training = Training(folder, orders)
    hvd.init()
    training.join(hvd)
    state = State(training.model, training.optimizer, sampler=training.sampler)
    state.register_reset_callbacks([lambda: orders.obey("reset")])
    hvd.elastic.run(training.run)(state)
    if hvd.rank() == 0:
        save(folder / "checkpoint.pt", training.model, training.optimizer, training.place())
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main()
