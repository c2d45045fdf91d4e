# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on scikit-learn's handwritten digits (1,797 images of 8x8).

Written as for Horovod: the same file runs alone (python examples/torch_digits.py) and on many
ranks (halayrun -np 4 python examples/torch_digits.py). The global batch is the same for any number
of ranks, so more ranks each do less.
"""

import argparse
import hashlib
import os
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import halay.torch as hvd
from halay import timeline


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = torch.nn.Linear(32 * 4 * 4, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--checkpoint", default="digits.pt", help="written by rank 0")
    parser.add_argument("--timeline", help="write a timeline of the last epoch to FILE.all")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size have to be positive")
    return args


def load_data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out test images: a fixed split of 80 to 20."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held_out = len(labels) // 5
    test, train = order[:held_out], order[held_out:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def train_epoch(model, optimizer, loader) -> float:
    """Returns the mean loss over all ranks."""
    model.train()
    total, batches = 0.0, 0
    for images, labels in loader:
        optimizer.zero_grad()
        with hvd.timeline_span("forward"):
            loss = F.cross_entropy(model(images), labels)
        with hvd.timeline_span("backward"):
            loss.backward()
        with hvd.timeline_span("step"):
            optimizer.step()
        total += loss.item()
        batches += 1
    return hvd.allreduce(torch.tensor(total / batches), name="mean_loss").item()


def evaluate(model, data: TensorDataset) -> float:
    """Accuracy: each rank looks at its shard, the counts are summed."""
    model.eval()
    images, labels = (t[hvd.rank() :: hvd.size()] for t in data.tensors)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    counts = torch.stack([right, torch.tensor(len(labels))])
    right, all_ = hvd.allreduce(counts, op=hvd.Sum, name="accuracy").tolist()
    return right / all_


def fingerprint(model) -> str:
    """SHA-256 of all parameter bytes."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def merge_timelines(path: str) -> None:
    """Rank 0 makes one file of all, and prints how backward passes and allreduces overlap."""
    hvd.barrier()  # all ranks have ended theirs
    if hvd.rank() != 0:
        return
    parts = [path, *(f"{path}.rank{rank}" for rank in range(1, hvd.size()))]
    timeline.merge(path + ".all", parts)
    spans = [e for e in timeline.read(path) if e["ph"] == "X"]
    passes = [(e["ts"], e["ts"] + e["dur"]) for e in spans if e["name"] == "backward"]
    starts = [e["ts"] + e["dur"] for e in spans if e["name"] == "QUEUE"]
    overlapping = sum(any(begin < ts < end for ts in starts) for begin, end in passes)
    print(
        f"overlap:     in {overlapping} of {len(passes)} steps an allreduce started before the "
        f"backward pass of rank 0 ended; open {path}.all in ui.perfetto.dev"
    )


def report(model, seconds: float, images: int, accuracy: float) -> None:
    hosts = hvd.hosts()
    digests = hvd.allgather_object(fingerprint(model), name="fingerprint")
    if hvd.rank() == 0:
        print(f"ranks:       {hvd.size()}")
        print(f"hosts:       {', '.join(dict.fromkeys(hosts))}")
        print(f"transport:   {hvd.transport()}")
        print(f"speed:       {images / seconds:,.0f} images/s")
        print(f"accuracy:    {accuracy:.2%} of the held-out test images")
        same = len(set(digests)) == 1
        print(f"parameters:  {'bit-identical on all ranks' if same else 'DIFFERENT'}", digests[0])
    if len(set(digests)) != 1:
        raise SystemExit("the parameters differ between ranks")


def main() -> None:
    args = parse_arguments()
    hvd.init()
    if args.batch_size % hvd.size() != 0:
        raise SystemExit(f"--batch-size {args.batch_size} is no multiple of {hvd.size()} ranks")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # ranks share the cores, and the network is too small for more

    train, test = load_data(args.seed)
    sampler = DistributedSampler(train, hvd.size(), hvd.rank(), seed=args.seed)
    loader = DataLoader(
        train,
        batch_size=args.batch_size // hvd.size(),
        sampler=sampler,
        num_workers=min(2, len(os.sched_getaffinity(0))),  # halayrun gives a rank its share
        persistent_workers=True,
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    begin = time.monotonic()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        if args.timeline and epoch == args.epochs - 1:
            hvd.start_timeline(args.timeline)
        loss = train_epoch(model, optimizer, loader)
        hvd.stop_timeline()
        accuracy = evaluate(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:2d}: loss {loss:.4f}, accuracy {accuracy:.2%}", flush=True)
    seconds = time.monotonic() - begin

    if hvd.rank() == 0:
        torch.save(model.state_dict(), args.checkpoint)
    report(model, seconds, args.epochs * len(train), accuracy)
    if args.timeline:
        merge_timelines(args.timeline)
    hvd.shutdown()


if __name__ == "__main__":
    main()
