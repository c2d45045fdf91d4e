# SPDX-License-Identifier: Apache-2.0
"""The package's version, here and nowhere else: pyproject.toml and CMakeLists.txt read it; the C header repeats it."""

__version__ = "0.1.0"
