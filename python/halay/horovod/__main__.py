# SPDX-License-Identifier: Apache-2.0
"""Runs a program with Halay as its `horovod`:

python -m halay.horovod script.py [arguments...]
python -m halay.horovod -m module [arguments...]
python -m halay.horovod --run ...      as horovodrun with these options and this program
python -m halay.horovod --options      prints what each option of horovodrun does
python -m halay.horovod --settings     prints what each HOROVOD_* setting does
python -m halay.horovod --probes       prints what each probe (mpi_built, ...) answers
"""

from __future__ import annotations

import os
import runpy
import sys

from . import install


def main() -> int:
    """Returns only where no program was run."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--options"]:
        from .flags import table

        print(table())
        return 0
    if arguments[:1] == ["--settings"]:
        from .settings import table

        print(table())
        return 0
    if arguments[:1] == ["--probes"]:
        from .probes import table

        print(table())
        return 0
    if arguments[:1] == ["--run"]:
        from .command import main as run

        return run(arguments[1:])
    as_module = arguments[:1] == ["-m"]
    program = arguments[1:] if as_module else arguments
    if not program or (program[0].startswith("-") and not as_module):
        print(__doc__, file=sys.stderr)
        return 2
    install()
    sys.argv = program
    if as_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(program[0])))
        runpy.run_path(program[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
