# SPDX-License-Identifier: Apache-2.0
"""The programs that come with the library, as commands of an installed package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Callable, NoReturn

_PACKAGE = Path(__file__).resolve().parent
_FOLDERS = (_PACKAGE / "bin", _PACKAGE.parents[1] / "build" / "bin")


def find(name: str) -> str | None:
    """The path of a program: in the package, or in the source tree's build folder."""
    for folder in _FOLDERS:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    return None


def _command(name: str) -> Callable[[], NoReturn]:
    def start() -> NoReturn:
        path = find(name)  # not by PATH, where this command stands itself
        if path is None:
            sys.exit(
                f"{name}: it is neither in {_FOLDERS[0]} nor in {_FOLDERS[1]}: build there "
                "(cmake --preset release && ninja -C build), or install Halay from a wheel"
            )
        os.execv(path, [name, *sys.argv[1:]])

    return start


halayrun = _command("halayrun")
halay_bench = _command("halay-bench")
halay_doctor = _command("halay-doctor")
halay_info = _command("halay-info")
halay_prove = _command("halay-prove")
halay_replay = _command("halay-replay")


def horovodrun() -> NoReturn:
    from .horovod.command import main

    sys.exit(main(sys.argv[1:]))
