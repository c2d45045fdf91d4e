# SPDX-License-Identifier: Apache-2.0
"""A training that test_elastic_jobs.py starts under halayrun: elastic_job.py FOLDER EVENTS BATCHES.

EVENTS: JSON, a list of [batch, rank, what]: what that rank does before that batch, once. Each
process adds a line of JSON to FOLDER/log.PID at each commit. All ranks together train with the same
rows whatever their number is, so that the loss of a commit is that of a run without events.
"""

import atexit
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

import halay.torch as hvd
from halay import _session

ROWS = 12


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randint(-3, 4, (ROWS, 5), generator=generator).double()
    return x, x.sum(1, keepdim=True)


def linger(path: Path) -> None:
    """A process that takes long to end; a file says when it has."""
    time.sleep(3)
    path.write_text(str(time.time()))


class Training:
    def __init__(self, folder: Path, events: list, batches: int) -> None:
        self.folder, self.events, self.batches = folder, events, batches
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        ).double()
        plain = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.5)
        self.optimizer = hvd.DistributedOptimizer(plain, self.model.named_parameters(), op=hvd.Sum)
        self.log = (folder / f"log.{os.getpid()}").open("a")

    def event(self, batch: int) -> None:
        for at, rank, what in self.events:
            mark = self.folder / f"event-{at}-{what}"
            if (at, rank) != (batch, hvd.rank()) or mark.exists():
                continue
            mark.write_text(f"{os.getpid()} {time.time()}")
            if what == "raise":
                raise LookupError("as the test asked for")
            if what == "exit":
                sys.exit(3)
            if what == "wait":  # for somebody to join
                end = time.monotonic() + 60
                while time.monotonic() < end and not _session.session().newcomers():
                    time.sleep(0.02)
            else:
                atexit.register(linger, self.folder / f"lingers-{at}")
                os.kill(os.getpid(), signal.SIGTERM if what == "leave" else signal.SIGKILL)

    def step(self, state) -> float:
        x, y = batch_of(state.batch)
        mine = slice(hvd.rank(), None, hvd.size())
        self.optimizer.zero_grad()
        loss = ((self.model(x[mine]) - y[mine]) ** 2).sum() / ROWS
        loss.backward()
        self.optimizer.step()
        return float(hvd.allreduce(loss.detach(), op=hvd.Sum, name="loss"))

    def note(self, state, loss: float) -> None:
        bits = b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())
        line = {"meeting": state.meeting, "batch": state.batch, "rank": hvd.rank(),
                "size": hvd.size(), "loss": loss, "sum": hashlib.sha256(bits).hexdigest(),
                "time": time.time()}  # fmt: skip
        print(json.dumps(line), file=self.log, flush=True)

    def run(self, state) -> None:
        while state.batch < self.batches:
            self.event(state.batch)
            loss = self.step(state)
            state.batch += 1
            if state.batch % 2 == 0:
                self.note(state, loss)
                state.commit()


def main() -> None:
    folder, events, batches = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
    hvd.init()
    training = Training(folder, events, batches)
    state = hvd.elastic.TorchState(training.model, training.optimizer, batch=0, meeting=0)

    def count() -> None:
        state.meeting += 1
        state.save()  # a meeting that ends without a commit counts too

    state.register_reset_callbacks([count])
    hvd.elastic.run(training.run)(state)
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main()
