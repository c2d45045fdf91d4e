# SPDX-License-Identifier: Apache-2.0
"""What tests that start processes of their own wait for, and look for afterwards."""

import os
import time

LATE_S = 60  # a process starts late where others have the cores


def until(condition, within_s=LATE_S):
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def processes_with(variable):
    """Pids of processes that have this NAME=VALUE in their environment, but for zombies."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if variable.encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found
