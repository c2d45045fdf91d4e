# SPDX-License-Identifier: Apache-2.0
"""ElasticSampler: deals a data set out to the ranks, and remembers how far the epoch has come."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from torch.utils.data import Sampler

from ..._basics import rank, size


class ElasticSampler(Sampler[int]):
    """The indices of a data set for this rank, without those that the epoch has used already.

    Call record_batch() after each batch and set_epoch() at the end of an epoch, and hand it to a
    TorchState. Ranks that use equal seeds get different samples; where they do not come out even,
    some are used twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def reset(self) -> None:
        """Deals what is left of the epoch out to the ranks that there are now."""
        self.rank, self.num_replicas = rank(), size()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: all samples are there again, in the order that belongs to it."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Counts a batch of batch_size samples on each rank as used."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        mine = range(self.rank, self.total_size, self.num_replicas)
        self.indices = [left[i % len(left)] for i in mine]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
