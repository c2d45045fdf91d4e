# SPDX-License-Identifier: Apache-2.0
"""A time until which something has to be done."""

from __future__ import annotations

import time

__all__ = ["Timeout", "TimeoutException"]


class TimeoutException(Exception):
    """It was not done in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Timeout:
    """timeout seconds from now on. message says what to do, with {activity} for what was not."""

    def __init__(self, timeout: float, message: str) -> None:
        self._seconds = timeout
        self._end = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Seconds, 0 at least."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether it is over."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """TimeoutException if it is over."""
        if self.timed_out():
            text = self._message.format(activity=activity)
            raise TimeoutException(f"{text} ({self._seconds} s are over)")
