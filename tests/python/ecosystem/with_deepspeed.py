# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on processors: ZeRO 1, 2 and 3 of an optimizer of torch."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from rank import batch, mlp

# Sums in its own shared memory, which it compiles at the first use: not a back end's.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def trained(backend, stage, **zero):
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": {
            "stage": stage, "reduce_bucket_size": 500, "allgather_bucket_size": 500, **zero,
        },
        "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    module = mlp()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
    found = []
    for step in range(6):
        x, y = batch(step, dist.get_rank())
        loss = torch.nn.functional.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


def zero0(backend):
    return trained(backend, 0)


def zero1(backend):
    return trained(backend, 1)


def zero2(backend):
    return trained(backend, 2, overlap_comm=True, contiguous_gradients=True)


def zero3(backend):
    return trained(backend, 3, stage3_param_persistence_threshold=0, stage3_max_live_parameters=100)
