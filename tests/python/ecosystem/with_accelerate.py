# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's accelerate. It names no other back end than Gloo and MPI on processors, and uses
the default group that it finds; who is in it is told by the launcher's variables."""

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import gather_object
from rank import dataset, mlp, numbers, start


def accelerated(backend, **options):
    start(backend)
    for state in (AcceleratorState, GradientState):
        state._reset_state(*([True] if state is AcceleratorState else []))
    found = Accelerator(cpu=True, **options)
    assert (found.process_index, found.num_processes) == (dist.get_rank(), dist.get_world_size())
    return found


def trained(accelerator, epochs=2):
    module = mlp()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(dataset(60), batch_size=8, shuffle=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    module, optimizer, loader, schedule = accelerator.prepare(module, optimizer, loader, schedule)
    found = []
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(module):
                loss = torch.nn.functional.cross_entropy(module(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(module.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            found += accelerator.gather(loss.detach().reshape(1)).tolist()
            found.append(accelerator.reduce(loss.detach(), "mean").item())
            found.append(float(len(accelerator.gather_for_metrics(y))))
    return found + numbers(accelerator.unwrap_model(module).parameters())


def loop(backend):
    return trained(accelerated(backend))


def accumulation(backend):
    accelerator = accelerated(backend, gradient_accumulation_steps=3, split_batches=True)
    found = trained(accelerator)
    rank = accelerator.process_index
    padded = accelerator.pad_across_processes(torch.ones(2 + rank, 3), dim=0)
    found += list(map(float, accelerator.gather(padded).shape))
    assert gather_object([{"rank": rank}]) == [{"rank": r} for r in range(dist.get_world_size())]
    with accelerator.main_process_first():
        accelerator.wait_for_everyone()
    with accelerator.split_between_processes(list(range(5))) as part:
        found += map(float, part)
    return found


def stop(backend):
    """One rank asks all to stop, and batches are dispatched from rank 0."""
    accelerator = accelerated(backend, dataloader_config=None)
    if accelerator.process_index == 1:
        accelerator.set_trigger()
    assert accelerator.check_trigger()
    found = accelerator.gather(torch.tensor([accelerator.process_index + 1.0]))
    return found.tolist()


def local_sgd(backend):
    from accelerate.local_sgd import LocalSGD

    accelerator = accelerated(backend)
    module = mlp()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(dataset(), batch_size=8)
    module, optimizer, loader = accelerator.prepare(module, optimizer, loader)
    with LocalSGD(accelerator=accelerator, model=module, local_sgd_steps=2) as local:
        for x, y in loader:
            accelerator.backward(torch.nn.functional.cross_entropy(module(x), y))
            optimizer.step()
            optimizer.zero_grad()
            local.step()
    return numbers(accelerator.unwrap_model(module).parameters())
