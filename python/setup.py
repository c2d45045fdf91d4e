# SPDX-License-Identifier: Apache-2.0
"""Puts halay-horovod.pth next to the package in a wheel; all else stands in pyproject.toml.

A .pth file is the only thing that an interpreter reads at its start without being told to: with it
HALAY_HOROVOD=1 is enough, under any launcher, and costs one look at a variable without it.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NAME = "halay-horovod.pth"


class BuildWithPth(build_py):
    """build_py, and the file."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_file(str(Path(__file__).parent / NAME), str(Path(self.build_lib) / NAME))


setup(cmdclass={"build_py": BuildWithPth})
