# SPDX-License-Identifier: Apache-2.0
"""Messages between the driver and a task, each signed with the secret of the run.

Nothing that is not signed is unpickled. A message counts in its own connection, direction and place
only: the signature covers both sides' random words and a counter. Nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hmac
import pickle
import secrets
import socket
import struct
import threading
import time
from typing import Any

HELLO_S = 10  # within which the other side says its first words
HELLO_BYTES = 1 << 16  # so much is read of one that is not known yet
_WORD_BYTES = 16
_HEAD = struct.Struct(">Q32s")
# The other machine's end is noticed after 10 + 3 * 5 s, also where nothing is sent.
_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Line:
    """Two sides that know key. OSError or EOFError where the other one is gone, or a stranger."""

    def __init__(self, sock: socket.socket, key: bytes, is_driver: bool) -> None:
        self.sock = sock
        self._hello_s: float | None = time.monotonic() + HELLO_S
        for option in _OPTIONS:
            sock.setsockopt(*option)
        own = secrets.token_bytes(_WORD_BYTES)
        sock.settimeout(HELLO_S)
        sock.sendall(own)
        other = self._read(_WORD_BYTES)
        words = own + other if is_driver else other + own
        keys = [hmac.digest(key, side + words, "sha256") for side in (b"driver", b"task")]
        self._send_key, self._receive_key = keys if is_driver else keys[::-1]
        self._sent = self._received = 0
        self._sending = threading.Lock()
        self._first_max: int | None = HELLO_BYTES
        if not is_driver:
            self._is_known()

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while len(view) > 0:
            if self._hello_s is not None:
                self.sock.settimeout(max(self._hello_s - time.monotonic(), 0.001))
            got = self.sock.recv_into(view)
            if got == 0:
                raise EOFError("the other side has closed the connection")
            view = view[got:]
        return data

    def _is_known(self) -> None:
        self._hello_s = self._first_max = None
        self.sock.settimeout(None)

    @staticmethod
    def _sign(key: bytes, turn: int, payload: bytes | bytearray) -> bytes:
        signed = hmac.new(key, turn.to_bytes(8, "big"), "sha256")
        signed.update(payload)
        return signed.digest()

    def send(self, value: Any) -> None:
        payload = pickle.dumps(value)
        with self._sending:
            mac = self._sign(self._send_key, self._sent, payload)
            self._sent += 1
            self.sock.sendall(_HEAD.pack(len(payload), mac))
            self.sock.sendall(payload)

    def receive(self) -> Any:
        """To the driver a task speaks within HELLO_S; else it waits until something comes."""
        count, mac = _HEAD.unpack(self._read(_HEAD.size))
        if self._first_max is not None and count > self._first_max:
            raise EOFError(f"a first message of {count} bytes")
        payload = self._read(count)
        if not hmac.compare_digest(mac, self._sign(self._receive_key, self._received, payload)):
            raise EOFError("a message that is not signed with the secret of this run")
        self._received += 1
        self._is_known()
        return pickle.loads(payload)

    def finish(self) -> None:
        """This side sends nothing more."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()
