# SPDX-License-Identifier: Apache-2.0
"""The package's version: pyproject.toml and CMakeLists.txt read it. The C header repeats it."""

__version__ = "0.1.0"
