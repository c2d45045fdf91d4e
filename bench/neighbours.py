# SPDX-License-Identifier: Apache-2.0
"""Busy processes that share the processors with a job that is measured, as on a node that several people use."""

import contextlib
import subprocess
import sys
from pathlib import Path

NICE = 10
LOOP = "while :; do :; done"


@contextlib.contextmanager
def beside(count):
    """So many neighbours while the block runs. They are killed at its end; where this process is killed before, the
    kernel kills them. They are our children: what they take is not what others take."""
    command = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", str(NICE), "sh", "-c", LOOP]
    busy = []
    try:
        for _ in range(count):
            busy.append(subprocess.Popen(command, start_new_session=True))
            # With autogroups what is nice is a session: so this way it is the same for all launchers.
            with contextlib.suppress(OSError):
                Path(f"/proc/{busy[-1].pid}/autogroup").write_text(str(NICE))
        yield
        if any(process.poll() is not None for process in busy):
            sys.exit(f"a neighbour has ended by itself: does this work: {' '.join(command[:6])} true")
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
