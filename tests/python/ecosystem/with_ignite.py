# SPDX-License-Identifier: Apache-2.0
"""pytorch-ignite uses the group that is there. Its auto_model wraps a model only where it knows the
back end's name: the program does so itself."""

import ignite.distributed as idist
import torch
from ignite.engine import create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from rank import dataset, mlp, numbers, start
from torch.nn.parallel import DistributedDataParallel


def trained(backend):
    start(backend)
    assert isinstance(idist.auto_model(mlp()), DistributedDataParallel) == (backend == "gloo")
    module, criterion = DistributedDataParallel(mlp()), torch.nn.CrossEntropyLoss()
    optimizer = idist.auto_optim(torch.optim.SGD(module.parameters(), lr=0.1))
    loader = idist.auto_dataloader(dataset(61), batch_size=8, shuffle=False)
    create_supervised_trainer(module, optimizer, criterion).run(loader, max_epochs=2)
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
    evaluator = create_supervised_evaluator(module, metrics=metrics)
    evaluator.run(loader)
    found = [evaluator.state.metrics[name] for name in metrics]
    rank = idist.get_rank()
    found.append(float(idist.all_reduce(rank + 1.0)))
    found.append(float(idist.broadcast(3.0 if rank == 0 else None, src=0, safe_mode=True)))
    assert idist.all_gather(f"rank {rank}") == ["rank 0", "rank 1"]
    with idist.one_rank_first():
        found.append(float(rank))
    idist.barrier()
    return found + numbers(module.parameters())
