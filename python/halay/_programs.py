# SPDX-License-Identifier: Apache-2.0
"""The programs that come with the library, as commands of an installed package."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Callable, NoReturn

_PACKAGE = Path(__file__).resolve().parent


def _folders() -> list[Path]:
    """Where programs may be: a wheel's, a build's of the source tree, and an installed prefix's."""
    folders = [_PACKAGE / "bin", _PACKAGE.parent.parent / "build" / "bin"]
    if _PACKAGE.parent.name == "python" and _PACKAGE.parent.parent.name == "halay":
        library = _PACKAGE.parent.parent.parent  # the package is LIBDIR/halay/python/halay there
        folders += [library.parent / "bin", library.parent.parent / "bin"]  # lib/x86_64-linux-gnu
    return folders


def find(name: str) -> str | None:
    """The path of a program that may be run."""
    for folder in _folders():
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    return None


def _missing(name: str) -> str:
    """Why there is no such program, and what to do."""
    folders = _folders()
    for path in (folder / name for folder in folders):
        if path.exists():
            return (
                f"{path} may not be run: install the wheel by pip (a program that was unpacked by "
                "hand wants chmod +x), on a file system that is not mounted noexec"
            )
    return (
        f"it is neither in {folders[0]} nor in {folders[1]}: build there "
        "(cmake --preset release && ninja -C build), or install Halay from a wheel by pip"
    )


def _command(name: str) -> Callable[[], NoReturn]:
    def start() -> NoReturn:
        path = find(name)  # not by PATH, where this command stands itself
        if path is None:
            sys.exit(f"{name}: {_missing(name)}")
        if not os.path.exists("/proc/self/exe"):  # the loader finds the library by it
            sys.exit(f"{name}: /proc is not mounted (mount -t proc proc /proc)")
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; ranks would inherit it
            signal.signal(ignored, signal.SIG_DFL)
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
