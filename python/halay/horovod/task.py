# SPDX-License-Identifier: Apache-2.0
"""One rank of horovod.run(): python -m halay.horovod.task FOLDER"""

from __future__ import annotations

import os
import pickle
import platform
import sys
import traceback
from pathlib import Path

from .._job import job_value
from ..errors import LEFT
from . import identity, install
from .launch import FUNCTION, dumps


def _rank() -> str:
    """The one that it had last; in an elastic job, before init(), only its place is known."""
    known = (os.environ.get("HOROVOD_RANK"), os.environ.get("PMIX_RANK"), job_value("slot"))
    return next((rank for rank in known if rank), "0")


def main() -> int:
    folder = Path(sys.argv[1])
    if not folder.is_dir():
        print(
            f"halay: the folder {folder} of horovod.run() is not on {platform.node()}: call it in "
            "a folder that all hosts of the job share",
            file=sys.stderr,
            flush=True,
        )
        return 1
    install()
    identity.export(identity.guess())
    try:
        function = pickle.loads((folder / FUNCTION).read_bytes())
        result = dumps(function())
        (folder / f"{_rank()}.result").write_bytes(result)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code == LEFT:
            raise  # of an elastic job
        text = traceback.format_exc()
        (folder / f"{_rank()}.error").write_text(text)
        print(text, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
