# SPDX-License-Identifier: Apache-2.0
import torch

import halay.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

torch.manual_seed(hvd.rank())  # each rank has its own data
for _ in range(10):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()  # with the gradients' average over all ranks

total = hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum, name="total")
print(f"rank {hvd.rank()} of {hvd.size()}: {total.item():g} ranks took part")
hvd.shutdown()
