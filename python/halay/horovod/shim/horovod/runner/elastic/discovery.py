# SPDX-License-Identifier: Apache-2.0
"""What a program's own discovery is made of."""

from halay.horovod.discovery import HostDiscovery

__all__ = ["HostDiscovery"]
