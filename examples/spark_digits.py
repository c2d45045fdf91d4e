# SPDX-License-Identifier: Apache-2.0
"""Trains torch_digits.py's network beside Spark's tasks: python examples/spark_digits.py [RANKS]

Rank 0 returns the trained parameters, with which the driver classifies.
"""

import sys

from pyspark.sql import SparkSession

import halay.spark

EPOCHS = 4


def load():
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    return images, torch.tensor(digits.target, dtype=torch.int64)


def network():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train(rate):
    """Mean loss of the last batch, and rank 0's parameters."""
    import torch
    import torch.nn.functional as F

    import halay.torch as hvd

    hvd.init()
    images, labels = load()
    model = network()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for epoch in range(EPOCHS):
        torch.manual_seed(epoch)
        order = torch.randperm(len(labels))
        order = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]
        for batch in order.split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)
    mean = hvd.allreduce(loss.detach(), name="loss").item()
    return mean, model.state_dict() if hvd.rank() == 0 else None


def main():
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    spark = SparkSession.builder.master(f"local[{ranks}]").getOrCreate()
    results = halay.spark.run(train, args=(0.1,), num_proc=ranks, stdout=sys.stdout)
    spark.stop()
    loss, parameters = results[0]
    model = network()
    model.load_state_dict(parameters)
    images, labels = load()
    right = (model(images).argmax(1) == labels).float().mean().item()
    print(f"loss {loss:.4f} on {len(results)} ranks; {100 * right:.0f} % of the digits are right")


if __name__ == "__main__":
    main()
