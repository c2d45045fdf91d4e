# SPDX-License-Identifier: Apache-2.0
"""What Horovod's tests replace."""

import socket


def get_driver_ip(nics: object) -> str:
    """Nobody asks: processes find each other by the launcher's address."""
    return socket.gethostbyname(socket.gethostname())


__all__ = ["get_driver_ip"]
