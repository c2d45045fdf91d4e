# SPDX-License-Identifier: Apache-2.0
"""Horovod's times: tests set them. They change nothing: halayrun has its own."""

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
ELASTIC_TIMEOUT_SECS = 600

__all__ = ["DISCOVER_HOSTS_FREQUENCY_SECS", "ELASTIC_TIMEOUT_SECS"]
