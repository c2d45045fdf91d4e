# SPDX-License-Identifier: Apache-2.0
"""A training that test_elastic_jobs.py starts under halayrun: elastic_job.py FOLDER EVENTS BATCHES.

EVENTS: JSON, of elastic_events.py. All ranks together train with the same rows whatever their
number is, so that the loss of a commit is that of a run without events.
"""

import json
import sys
from pathlib import Path

import torch
from elastic_events import Events

import halay.torch as hvd

ROWS = 12


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randint(-3, 4, (ROWS, 5), generator=generator).double()
    return x, x.sum(1, keepdim=True)


class Training:
    def __init__(self, folder: Path, events: list, batches: int) -> None:
        self.events, self.batches = Events(folder, events), batches
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        ).double()
        plain = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.5)
        self.optimizer = hvd.DistributedOptimizer(plain, self.model.named_parameters(), op=hvd.Sum)

    def step(self, state) -> float:
        x, y = batch_of(state.batch)
        mine = slice(hvd.rank(), None, hvd.size())
        self.optimizer.zero_grad()
        loss = ((self.model(x[mine]) - y[mine]) ** 2).sum() / ROWS
        loss.backward()
        self.optimizer.step()
        return float(hvd.allreduce(loss.detach(), op=hvd.Sum, name="loss"))

    def run(self, state) -> None:
        while state.batch < self.batches:
            self.events.before(state.batch)
            loss = self.step(state)
            state.batch += 1
            if state.batch % 2 == 0:
                bits = b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())
                self.events.commit(state.meeting, state.batch, loss, bits)
                state.commit()


def main() -> None:
    folder, events, batches = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
    in_sets = any("add_members" in what for _, _, what in events)
    hvd.init(process_sets=[hvd.ProcessSet([0])] if in_sets else None)
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
