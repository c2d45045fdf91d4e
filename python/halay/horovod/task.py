# SPDX-License-Identifier: Apache-2.0
"""One rank of horovod.run(): python -m halay.horovod.task FOLDER"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path

from . import identity, install
from .launch import FUNCTION, dumps


def main() -> int:
    folder = Path(sys.argv[1])
    rank = os.environ["PMIX_RANK"]
    install()
    identity.export(identity.guess())
    try:
        function = pickle.loads((folder / FUNCTION).read_bytes())
        (folder / f"{rank}.result").write_bytes(dumps(function()))
    except BaseException:
        text = traceback.format_exc()
        (folder / f"{rank}.error").write_text(text)
        print(text, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
