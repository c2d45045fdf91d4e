# SPDX-License-Identifier: Apache-2.0
"""A training that is interrupted, and goes on where it was.

    halayrun -np 2 python examples/torch_resume.py --checkpoint digits.pt --logs runs

Rank 0 writes a checkpoint after each epoch, in place of the last one, and logs to TensorBoard, and
to MLflow and Weights & Biases where MLFLOW_TRACKING_URI and WANDB_PROJECT are set, if they are
installed. SIGUSR1, as of `sbatch --signal=USR1@120`, ends it after the epoch, with status 75:
slurm/resume.sbatch puts such a job back into the queue. So does SIGTERM, of who takes the machine
away: halayrun gives ranks 30 s then (--grace), and an epoch has to fit into that.
"""

import argparse
import hashlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import halay.torch as hvd

AGAIN = 75  # EX_TEMPFAIL: there is more to do


def loggers(folder: str | None) -> list[Callable[[int, float], object]]:
    """What is called with an epoch and its loss, on rank 0."""
    made: list[Callable[[int, float], object]] = []
    if hvd.rank() != 0:
        return made
    if folder and importlib.util.find_spec("tensorboard"):
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(folder)
        made.append(lambda epoch, loss: (writer.add_scalar("loss", loss, epoch), writer.flush()))
    if os.environ.get("MLFLOW_TRACKING_URI") and importlib.util.find_spec("mlflow"):
        import mlflow

        made.append(lambda epoch, loss: mlflow.log_metric("loss", loss, step=epoch))
    if os.environ.get("WANDB_PROJECT") and importlib.util.find_spec("wandb"):
        import wandb

        run = wandb.init(id=os.environ.get("SLURM_JOB_ID"), resume="allow")
        made.append(lambda epoch, loss: run.log({"loss": loss}, step=epoch))
    return made


def save(path: str, state: dict[str, object]) -> None:
    """Whole or not at all: a job may end at any time."""
    torch.save(state, f"{path}.new")
    os.replace(f"{path}.new", path)


def main() -> int:
    parser = argparse.ArgumentParser(description="A training that can be interrupted.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoint", default="resume.pt")
    parser.add_argument("--logs", help="a folder for TensorBoard")
    args = parser.parse_args()
    told = False

    def leave(_signal: int, _frame: FrameType | None) -> None:
        nonlocal told
        told = True

    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, leave)
    hvd.init()
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images.reshape(-1, 64) / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if hvd.rank() == 0 and os.path.exists(args.checkpoint):
        found = torch.load(args.checkpoint)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        first = found["epoch"]
    first = hvd.broadcast_object(first, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    logs = loggers(args.logs)
    for epoch in range(first, args.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        total = 0.0
        for batch in order[hvd.rank() :: hvd.size()].split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        # The loss of a row, and whether one of the ranks has been told to leave.
        total = hvd.allreduce(torch.tensor(total), op=hvd.Sum, name="loss").item()
        mean = total / len(images)
        leaving = hvd.allreduce(torch.tensor(told), op=hvd.Max, name="leaving").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(args.checkpoint, {**state, "epoch": epoch + 1})
            for log in logs:
                log(epoch + 1, mean)
        if leaving and epoch + 1 < args.epochs:
            return AGAIN
    if hvd.rank() == 0:
        flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        print(f"parameters: {hashlib.sha256(flat.numpy().tobytes()).hexdigest()}", flush=True)
    return 0


if __name__ == "__main__":
    status = main()
    hvd.shutdown()
    sys.exit(status)
