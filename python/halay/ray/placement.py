# SPDX-License-Identifier: Apache-2.0
"""Where the actors go: a placement group, and which of its bundles each one takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import ray
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .worker import BaseHorovodWorker

ANY_BUNDLE = -1


class Shape(NamedTuple):
    """What an executor was asked for: num_workers, or num_hosts times num_workers_per_host."""

    num_workers: int | None
    num_hosts: int | None
    num_workers_per_host: int
    cpus: float
    gpus: float
    use_current_group: bool

    @property
    def size(self) -> int:
        if self.num_workers is not None:
            return self.num_workers
        return (self.num_hosts or 0) * self.num_workers_per_host


def create_placement_group(
    resources_per_bundle: dict[str, float],
    num_bundles: int,
    pg_timeout: float,
    pg_strategy: str,
) -> tuple[Any, list[dict[str, float]]]:
    """The group, and what its bundles are. TimeoutError where Ray has no room for it in time."""
    bundles = [dict(resources_per_bundle) for _ in range(num_bundles)]
    group = ray.util.placement_group(bundles, strategy=pg_strategy)
    try:
        if group.wait(pg_timeout):
            return group, bundles
        free = {name: ray.available_resources().get(name, 0) for name in resources_per_bundle}
        where = ", each on a node of its own" if pg_strategy == "STRICT_SPREAD" else ""
        raise TimeoutError(
            f"Ray had no room for {num_bundles} times {resources_per_bundle}{where}, for "
            f"{pg_timeout:g} s; free are {free}: ask for less, add nodes, or give create_settings "
            "a longer placement_group_timeout_s"
        )
    except BaseException:
        ray.util.remove_placement_group(group)
        raise


class Placement:
    """A placement group, made here or the caller's own."""

    def __init__(self, shape: Shape, timeout_s: float) -> None:
        self._shape = shape
        current = get_current_placement_group() if shape.use_current_group else None
        self._made_here = current is None
        self.bundles: list[int] = [ANY_BUNDLE] * shape.size  # of each worker
        if current is not None:
            self.group = current
            return
        apart = shape.num_workers is None  # a bundle is a host's share, else a worker's
        each = shape.num_workers_per_host if apart else 1
        resources = {"CPU": shape.cpus * each, "GPU": shape.gpus * each}
        wanted = {name: amount for name, amount in resources.items() if amount} or {"CPU": 0.001}
        strategy = "STRICT_SPREAD" if apart else "PACK"
        self.group, _ = create_placement_group(wanted, shape.size // each, timeout_s, strategy)
        self.bundles = [worker // each for worker in range(shape.size)]

    def new_actor(self, bundle: int, shim: bool) -> Any:
        strategy = PlacementGroupSchedulingStrategy(
            self.group,
            placement_group_bundle_index=bundle,
            placement_group_capture_child_tasks=False,
        )
        options = {"num_cpus": self._shape.cpus, "num_gpus": self._shape.gpus}
        cls = ray.remote(BaseHorovodWorker)
        return cls.options(scheduling_strategy=strategy, **options).remote(shim)

    def remove(self) -> None:
        if self._made_here:
            ray.util.remove_placement_group(self.group)
