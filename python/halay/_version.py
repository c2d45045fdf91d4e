# SPDX-License-Identifier: Apache-2.0
"""The version. pyproject.toml and CMakeLists.txt read it here; the C header repeats it."""

__version__ = "0.1.0"
