# SPDX-License-Identifier: Apache-2.0
"""A training that goes on when ranks are lost, leave or join.

halayrun -np 3 --min-np 2 --max-np 4 python examples/torch_elastic.py

Kill one of its processes, rank 0 too: the others go on from the last commit, and another one comes
in. docs/elastic.md says what else may happen. With --checkpoint FILE a job that has lost all of its
processes goes on from the last epoch when it is started again.
"""

import argparse
import os
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import halay.torch as hvd

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--checkpoint", type=Path, help="a file that is written after each epoch")
args = parser.parse_args()

hvd.init()
x = torch.randn(4096, 20, generator=torch.Generator().manual_seed(1))
data = TensorDataset(x, x.sin().sum(1, keepdim=True))

model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
sampler = hvd.elastic.ElasticSampler(data)
first = 0
if args.checkpoint and args.checkpoint.exists():
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"]
    sampler.set_epoch(first)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=first)


def save(path: Path) -> None:
    """A job that dies meanwhile leaves the file of the epoch before."""
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": state.epoch}
    torch.save(kept, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def ranks_changed() -> None:
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * hvd.size()


ranks_changed()  # since the checkpoint, maybe
state.register_reset_callbacks([ranks_changed])


# No other collective may stand between hvd.init() and this: who joins comes straight to it.
@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    while state.epoch < args.epochs:
        loss = torch.zeros(())  # where an interruption has left no batch of the epoch
        for number, (inputs, targets) in enumerate(DataLoader(data, 32, sampler=sampler)):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            sampler.record_batch(number, 32)
            if number % 5 == 4:
                state.commit()
        loss = hvd.allreduce(loss.detach(), name="loss")
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} on {hvd.size()} ranks: loss {loss.item():.4f}", flush=True)
        state.epoch += 1
        if args.checkpoint and hvd.rank() == 0:
            save(args.checkpoint)
        sampler.set_epoch(state.epoch)
        state.commit()


train(state)
hvd.shutdown()
