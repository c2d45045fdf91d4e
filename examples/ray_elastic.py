# SPDX-License-Identifier: Apache-2.0
"""A training on Ray whose workers come and go: python examples/ray_elastic.py [ADDRESS]

ADDRESS: of a Ray cluster that runs ("auto": the one of this machine); else one with three CPUs is
started here. Kill a worker, take a node away, add one: the others go on from the last commit.
"""

import sys

import ray

from halay.ray import RayExecutor, ray_logger

EPOCHS = 5


def train():
    """The last epoch's loss, and how many workers there were then."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    import halay.torch as hvd

    hvd.init()
    x = torch.randn(4096, 20, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, x.sin().sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(data)

    @hvd.elastic.run
    def run(state):
        while state.epoch < EPOCHS:
            for number, (inputs, targets) in enumerate(DataLoader(data, 32, sampler=sampler)):
                optimizer.zero_grad()
                state.loss = torch.nn.functional.mse_loss(model(inputs), targets)
                state.loss.backward()
                optimizer.step()
                state.loss = state.loss.item()
                sampler.record_batch(number, 32)
                if number % 5 == 4:
                    state.commit()
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            if hvd.rank() == 0:
                ray_logger.log((state.epoch, hvd.size(), state.loss))
            state.commit()
        return state.loss, hvd.size()

    return run(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, loss=0.0))


def tell(said):
    epoch, workers, loss = said
    print(f"epoch {epoch} on {workers} workers: loss {loss:.4f}", flush=True)


def main():
    if len(sys.argv) > 1:
        ray.init(sys.argv[1])
    else:
        ray.init(num_cpus=3, include_dashboard=False)
    executor = RayExecutor(RayExecutor.create_settings(), min_workers=2, max_workers=4)
    executor.start()
    results = executor.run(train, callbacks=[tell])
    print(f"{len(results)} workers were there at the end")
    executor.shutdown()


if __name__ == "__main__":
    main()
