# SPDX-License-Identifier: Apache-2.0
"""What the tests of Ray and Spark train on each rank, which import it by PYTHONPATH."""


def steps():
    """The parameters after three steps, on each rank with data of its own."""
    import torch

    import halay.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return [p.tolist() for p in model.parameters()]
