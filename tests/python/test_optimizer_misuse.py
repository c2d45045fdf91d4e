# SPDX-License-Identifier: Apache-2.0
"""Gradients that are changed while they are reduced are refused; right programs are not."""

import pytest
import torch
from conftest import RANKS

import halay.torch as hvd

WRONG = "changed while they were being reduced"


def made(options, sparse=False, flat=False):
    torch.manual_seed(0)
    first = torch.nn.Embedding(8, 4, sparse=True) if sparse else torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(first, torch.nn.Linear(4, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-4), model.named_parameters(), **options
    )
    if flat:  # gradients that are parts of one memory, as some frameworks have them
        owned = list(model.parameters())
        memory, at = torch.zeros(sum(p.numel() for p in owned)), 0
        for p in owned:
            p.grad = memory[at : at + p.numel()].view_as(p)
            at += p.numel()
    return model, optimizer


def loss_of(model):
    if isinstance(model[0], torch.nn.Embedding):
        return model(torch.tensor([hvd.rank(), 1, 1])).pow(2).sum()
    return model(torch.ones(3, 4) * (hvd.rank() + 1)).pow(2).sum()


def scaled_step(model, optimizer, scaler):
    scaler.step(optimizer)


def unscaled(model, optimizer, scaler):
    scaler.unscale_(optimizer)


def clipped(model, optimizer, scaler):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()


def halved(model, optimizer, scaler):
    for p in model.parameters():
        p.grad = p.grad * 0.5
    optimizer.synchronize()


def zeroed(model, optimizer, scaler):
    model.zero_grad(set_to_none=False)
    optimizer.step()


def rank_wrong():
    for options in ({}, {"compression": hvd.Compression.fp16}, {"groups": 1}):
        for sparse in (False, True):
            if sparse and "groups" in options:
                continue
            for wrong in (scaled_step, unscaled, clipped, halved, zeroed):
                if sparse and wrong is clipped:
                    continue  # torch cannot
                model, optimizer = made(options, sparse)
                scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
                scaler.scale(loss_of(model)).backward()
                with pytest.raises(RuntimeError, match=WRONG) as caught:
                    wrong(model, optimizer, scaler)
                assert "with optimizer.skip_synchronize(): " in str(caught.value)
                optimizer._reducer.synchronize() if wrong in (scaled_step, unscaled) else None
                for p in model.parameters():
                    p.grad = None


def check_equal(model):
    for p in model.parameters():
        everywhere = hvd.allgather(p.detach().unsqueeze(0))
        assert all(torch.equal(one, everywhere[0]) for one in everywhere)


def rank_right():
    """Clipping and scaling at their time, accumulation, hooks, a scaler that is off."""
    for options in ({}, {"compression": hvd.Compression.fp16}, {"backward_passes_per_step": 2}):
        for sparse, flat in ((False, False), (True, False), (False, True)):
            model, optimizer = made(options, sparse, flat)
            model[1].weight.register_hook(lambda grad: grad * 2)
            scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
            for _ in range(4):
                optimizer.zero_grad(set_to_none=not flat)
                for _ in range(options.get("backward_passes_per_step", 1)):
                    scaler.scale(loss_of(model)).backward()
                optimizer.synchronize()
                scaler.unscale_(optimizer)
                if not sparse:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                with optimizer.skip_synchronize():
                    scaler.step(optimizer)
                scaler.update()
                check_equal(model)
            off = torch.amp.GradScaler("cpu", enabled=False)
            for step in range(2):
                optimizer.zero_grad(set_to_none=step == 0 and not flat)
                for _ in range(options.get("backward_passes_per_step", 1)):
                    off.scale(loss_of(model)).backward()
                norms = [p.grad.norm() for p in model.parameters() if not sparse]  # a read only
                assert len(norms) == 0 or all(map(torch.isfinite, norms))
                off.step(optimizer)
            check_equal(model)


@pytest.mark.parametrize("nranks", RANKS)
def test_changed_gradients_are_refused(job, nranks):
    job(nranks, rank_wrong)


@pytest.mark.parametrize("nranks", RANKS)
def test_right_programs_are_not(job, nranks):
    job(nranks, rank_right)
