# SPDX-License-Identifier: Apache-2.0
"""How many workers there may be, and on which nodes, by Horovod's interface."""

from __future__ import annotations

import random
import time

import ray

from ..horovod.discovery import HostDiscovery


class RayHostDiscovery(HostDiscovery):
    """All nodes of the Ray cluster that live, each with as many places as it has room for in all.

    What others hold there counts as room: a worker waits until it is free.
    """

    def __init__(
        self,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: float | None = 1,
        cpus_per_slot: float | None = None,
        gpus_per_slot: float | None = None,
    ) -> None:
        self.use_gpu = use_gpu
        self.cpus_per_worker = cpus_per_slot if cpus_per_slot is not None else cpus_per_worker
        self.gpus_per_worker = (
            gpus_per_slot if gpus_per_slot is not None else gpus_per_worker or int(use_gpu)
        )

    def _places(self, resources: dict[str, float]) -> int:
        needs = {"CPU": self.cpus_per_worker, "GPU": self.gpus_per_worker if self.use_gpu else 0}
        room = [resources.get(name, 0) // need for name, need in needs.items() if need > 0]
        return int(min(room, default=0))

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in ray.nodes():
            places = self._places(node["Resources"]) if node["alive"] else 0
            if places > 0:
                host = node["NodeManagerAddress"]  # several nodes may be on one machine
                found[host] = found.get(host, 0) + places
        return found


class TestDiscovery(RayHostDiscovery):
    """For trials: hides a node or shows it again, by chance, every change_frequency_s seconds.

    So many of the nodes are hidden that min_hosts to max_hosts are left. Only hides: Horovod's
    _graceful=False, which ends the node, is not there.
    """

    __test__ = False  # no test of pytest's

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: float | None = 1,
        verbose: bool = True,
        _graceful: bool = True,
        cpus_per_slot: float | None = None,
        gpus_per_slot: float | None = None,
    ) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker, cpus_per_slot, gpus_per_slot)
        if not _graceful:
            raise NotImplementedError(
                "TestDiscovery(_graceful=False) does not end nodes in Halay: take one down by "
                "`ray stop` there"
            )
        self._least, self._most, self._every_s = min_hosts, max_hosts, change_frequency_s
        self._hidden: set[str] = set()
        self._changed_s = time.monotonic()
        self._verbose = verbose

    def _change(self, hosts: dict[str, int]) -> None:
        self._hidden &= hosts.keys()
        shown = sorted(hosts.keys() - self._hidden)
        show = len(shown) <= self._least or (len(shown) < self._most and random.random() < 0.5)
        if show and self._hidden:
            self._hidden.remove(random.choice(sorted(self._hidden)))
        elif not show and len(shown) > self._least:
            self._hidden.add(random.choice(shown))

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        hosts = super().find_available_hosts_and_slots()
        if time.monotonic() - self._changed_s >= self._every_s:
            self._changed_s = time.monotonic()
            self._change(hosts)
        left = {host: places for host, places in hosts.items() if host not in self._hidden}
        if self._verbose:
            print(f"{len(left)} of {len(hosts)} hosts: {left}")
        return left
