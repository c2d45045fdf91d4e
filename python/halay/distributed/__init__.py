# SPDX-License-Identifier: Apache-2.0
"""Halay as a back end of torch.distributed.

    import torch.distributed as dist
    import halay.distributed            # not needed where Halay is installed, see below
    dist.init_process_group("halay")

Importing this module registers the back end "halay" for CPU and CUDA tensors. An installed Halay
names register() as an entry point of the group "torch.backends", which `import torch` (2.5 and
newer) calls; TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns that off, and the import above is needed then.
It loads nothing but this file: the C library is loaded when a process group is made.

No init_method is needed: where torchrun's variables are not set, rank, size and the store come from
Halay, whatever started the ranks (halayrun, srun, mpirun, jsrun). init_method="halay://" asks Halay
in any case.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any

__all__ = ["register", "shrink"]


def _make(options: Any, _: object) -> Any:
    from ._start import make

    return make(options)


def _rendezvous(_: str, **__: object) -> Iterator[tuple[Any, int, int]]:
    from ._start import rendezvous

    yield rendezvous()


def _environment(otherwise: Any, url: str, **options: Any) -> Iterator[tuple[Any, int, int]]:
    """torch's env://. Where a launcher of Halay's has started this process, and neither variables
    nor the program say which rank it is, Halay does, for any back end."""
    from ._place import launched

    told = os.environ.get("RANK") or "rank=" in url or "world_size=" in url
    if told or not launched():
        yield from otherwise(url, **options)
    else:
        yield from _rendezvous(url)


def _monitored_barrier(
    otherwise: Any, group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
) -> None:
    """torch's monitored_barrier, which refuses all back ends but Gloo."""
    import torch.distributed as dist

    outside = group is dist.GroupMember.NON_GROUP_MEMBER
    if outside or dist.get_backend(group) != "halay":
        otherwise(group, timeout, wait_all_ranks)
        return
    if isinstance(timeout, (int, float)):
        timeout = datetime.timedelta(seconds=timeout)
    of: Any = dist.group.WORLD if group is None else group
    of.monitored_barrier(timeout, wait_all_ranks)


def register() -> None:
    """Makes the back end and halay:// known to torch.distributed, and env:// ask Halay where torch
    would not know. torch's monitored_barrier takes Halay's groups, too. Does nothing the second
    time."""
    import torch.distributed as dist

    if not dist.is_available() or "HALAY" in dist.Backend._plugins:
        return
    dist.Backend.register_backend("halay", _make, extended_api=True, devices=["cpu", "cuda"])
    of_torch: Any = import_module("torch.distributed.distributed_c10d")
    theirs = of_torch.monitored_barrier
    ours = update_wrapper(partial(_monitored_barrier, theirs), theirs)
    for module in (of_torch, import_module("torch.distributed")):
        setattr(module, theirs.__name__, ours)
    known: Any = import_module("torch.distributed.rendezvous")
    known.register_rendezvous_handler("halay", _rendezvous)
    handlers = getattr(known, "_rendezvous_handlers", {})
    if "env" in handlers:
        handlers["env"] = partial(_environment, handlers["env"])


def shrink(timeout: datetime.timedelta | None = None) -> list[int]:
    """Goes on without the ranks that have failed: a new default group of the others.

    Called on every rank that is left, after a call of torch.distributed has raised HalayPeerLost
    (a rank died), HalayTimeout (one hangs) or HalayRevoked (another rank is here already), or
    RuntimeError where C++ has waited. Calls that are still under way on other ranks end with
    HalayRevoked, so these come, too. All groups are destroyed; the new default group has the
    ranks that are left, renumbered in their order, and the time limit `timeout` (torch's default
    if None). Models and optimizers stay as they are: broadcast their state, and make sub-groups,
    DistributedDataParallel and samplers anew.

    Returns the old ranks that have failed. Raises HalayPeerLost on a rank that the others have left
    behind, because it did not come by the deadline: it can only end.

    The launcher must let a job outlive a rank: halayrun --keep-going does, torchrun does not.
    """
    from ._recover import shrink as of_default

    return of_default(timeout)


register()
