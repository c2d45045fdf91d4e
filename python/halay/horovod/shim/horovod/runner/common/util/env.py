# SPDX-License-Identifier: Apache-2.0
"""The rank and size that the launcher announced."""

from __future__ import annotations

import os

__all__ = ["get_env_rank_and_size"]

_VARIABLES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """(rank, size); (0, 1) without a launcher. `import horovod` has set HOROVOD_RANK and _SIZE."""
    for names in _VARIABLES:
        rank, size = (os.environ.get(name) for name in names)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(f"only one of {names[0]} and {names[1]} is set")
    return 0, 1
