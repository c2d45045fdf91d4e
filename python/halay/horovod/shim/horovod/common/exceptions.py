# SPDX-License-Identifier: Apache-2.0
"""What programs catch."""

from __future__ import annotations

from halay.errors import HorovodInternalError, HostsUpdatedInterrupt

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """What HorovodVersionMismatchError says. Halay raises none: it is not built for a framework."""
    return f"{name} {version} is not the {installed_version} that was there at the installation"


class HorovodVersionMismatchError(ImportError):
    """A framework is of another version than the one that this was built for."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
