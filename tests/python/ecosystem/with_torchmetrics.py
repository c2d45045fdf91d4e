# SPDX-License-Identifier: Apache-2.0
"""torchmetrics: states that are summed over the ranks, and lists of unequal lengths."""

import torch
import torch.distributed as dist
import torchmetrics
from rank import KINDS, batch, mlp, start


def metrics(backend):
    start(backend)
    torch.manual_seed(0)
    of = {"task": "multiclass", "num_classes": KINDS}
    found = torchmetrics.MetricCollection(
        {
            "accuracy": torchmetrics.Accuracy(**of),
            "area": torchmetrics.AUROC(**of),
            "confusion": torchmetrics.ConfusionMatrix(**of),
        }
    )
    mean, everything, module = torchmetrics.MeanMetric(), torchmetrics.CatMetric(), mlp()
    for step in range(3):
        x, y = batch(step, dist.get_rank(), rows=4 + 3 * dist.get_rank())
        found.update(module(x).softmax(-1), y)
        mean.update(x.mean(), weight=len(x))
        everything.update(y.float())
    values = found.compute()
    return [
        values["accuracy"].item(), values["area"].item(), mean.compute().item(),
        *values["confusion"].flatten().tolist(), *everything.compute().tolist(),
    ]  # fmt: skip
