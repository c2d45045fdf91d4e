# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface of a program's own discovery of hosts."""

from __future__ import annotations

from abc import ABC, abstractmethod


class HostDiscovery(ABC):
    """Asked about once a second, in the process that has called run()."""

    @abstractmethod
    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Places on each host. On Ray a host is the address of a node (a resource node:HOST)."""
