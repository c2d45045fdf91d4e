# SPDX-License-Identifier: Apache-2.0
"""Trains torch_digits.py's network on Ray's actors: python examples/ray_digits.py [WORKERS]

A worker that is lost is replaced, and training goes on from the epoch that was finished last: the
driver has it, since each call of train() returns it.
"""

import sys

import ray

from halay.ray import RayExecutor, WorkerLost

EPOCHS = 4


def train(epoch, state):
    """One epoch; from state, if there is one. Mean loss, and rank 0's new state."""
    import torch
    import torch.nn.functional as F
    from sklearn.datasets import load_digits

    import halay.torch as hvd

    hvd.init()
    torch.manual_seed(epoch)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    if state is not None:
        model.load_state_dict(state)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    order = torch.randperm(len(labels))
    order = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]
    for batch in order.split(32):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss").item()
    return mean, model.state_dict() if hvd.rank() == 0 else None


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    ray.init(num_cpus=workers, include_dashboard=False)
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=workers)
    executor.start()
    state, epoch = None, 0
    while epoch < EPOCHS:
        try:
            results = executor.run(train, [epoch, state])
        except WorkerLost as lost:
            print(lost)
            continue
        loss, state = results[0]
        epoch += 1
        print(f"epoch {epoch}: loss {loss:.4f} on {len(results)} workers", flush=True)
    executor.shutdown()


if __name__ == "__main__":
    main()
