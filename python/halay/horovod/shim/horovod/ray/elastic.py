# SPDX-License-Identifier: Apache-2.0
"""Workers that come and go: not there yet."""

from halay.ray import ElasticRayExecutor

__all__ = ["ElasticRayExecutor"]
