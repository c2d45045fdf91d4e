#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a timeline costs a training step: a perceptron of 12 layers, steps with and without a timeline in turns.

    halayrun -np 2 python bench/timeline_cost.py FILE [pairs]

Each pair of turns is compared in itself; which comes first changes. See bench/training.c for the engine alone."""

import statistics
import sys
import time

import torch
import torch.nn.functional as F

import halay.torch as hvd

LAYERS, WIDTH, BATCH, STEPS = 12, 256, 32, 30


def turn(model, optimizer, x, y):
    """Milliseconds of the median step."""
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def main(path, pairs):
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    turn(model, optimizer, x, y)
    costs, taken = [], ([], [])
    for pair in range(pairs):
        for on in (pair % 2, 1 - pair % 2):
            if on:
                hvd.start_timeline(path)
            hvd.barrier()
            turn(model, optimizer, x, y)  # the barrier is no part of the step: what follows it settles
            taken[on].append(turn(model, optimizer, x, y))
            hvd.stop_timeline()
        costs.append(100 * (taken[1][-1] / taken[0][-1] - 1))
    if hvd.rank() == 0:
        low, mid, high = statistics.quantiles(costs, n=4)
        print(f"{2 * LAYERS} tensors: {statistics.median(taken[0]):.3f} ms a step without a timeline, "
              f"{statistics.median(taken[1]):.3f} with; it costs {mid:+.2f} % (median of {pairs} pairs; "
              f"quartiles {low:+.2f}, {high:+.2f})")
    hvd.shutdown()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20)
