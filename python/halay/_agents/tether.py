# SPDX-License-Identifier: Apache-2.0
"""A command that does not outlive this process, however that ends.

Linux ends a child with the *thread* that has made it: so that is one which waits for the child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

# Between fork and exec nothing may be called in a process with threads, so it is done behind exec.
_TIE = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"  # PR_SET_PDEATHSIG
    "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"  # which a script in the background ignores
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])\n"
)


class Tethered:
    """A command in a session of its own; streams as subprocess.Popen takes them.

    pidfd can be polled: it is ready when the command has ended. It lasts until close().
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], **streams: Any) -> None:
        python = [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid())]
        self._made, self._error = threading.Event(), None
        self._command, self._streams = [*python, *command], {"env": dict(env), **streams}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._made.wait()
        if self._error is not None:
            raise self._error

    _error: OSError | None
    process: subprocess.Popen[bytes]
    pidfd: int

    def _watch(self) -> None:
        try:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, start_new_session=True, **self._streams
            )
            self.pidfd = os.pidfd_open(self.process.pid)
        except OSError as error:
            self._error = error
            return
        finally:
            self._made.set()
        self.process.wait()

    @property
    def status(self) -> int | None:
        """As subprocess has it; None while it runs."""
        return None if self._thread.is_alive() else self.process.returncode

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def signal(self, number: int) -> None:
        """Where it has not ended."""
        if self._thread.is_alive():
            self.process.send_signal(number)

    def close(self) -> None:
        """It must have ended."""
        os.close(self.pidfd)
