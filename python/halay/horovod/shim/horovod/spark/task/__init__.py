# SPDX-License-Identifier: Apache-2.0
"""What a rank may ask of its task."""

from halay.spark import get_available_devices

__all__ = ["get_available_devices"]
