# SPDX-License-Identifier: Apache-2.0
"""A process of an agent of an engine's job: python -m halay._agents.child ORDERS SOCKET"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import traceback
from typing import Any

from ..errors import LEFT
from .words import MET, RAISED, RETURNED, Channel, Failure, Orders, contents, open_channel


def _failure(channel: Channel, error: BaseException) -> Failure:
    pickled = None
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):
            pickled = channel.dumps(error)
            pickle.loads(pickled)
    return Failure(pickled, f"{type(error).__name__}: {error}", traceback.format_exc())


def _in_front(gpus: tuple[str, ...], place: int) -> str:
    """The worker's own GPU where a program looks for it: at its local rank."""
    others = list(gpus[1:])
    return ",".join([*others[:place], gpus[0], *others[place:]])


def _call(orders: Orders, channel: Channel) -> Any:
    if orders.shim:
        from ..horovod import install

        install()
    if orders.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(orders.gpus)
    from .. import _session

    def met(session: _session.Session) -> None:
        if orders.gpus and channel.rank < 0:  # read when CUDA is used first, and never again
            os.environ["CUDA_VISIBLE_DEVICES"] = _in_front(orders.gpus, session.local_rank)
        channel.rank, channel.size = session.rank, session.size
        channel.say(MET)

    _session.at_open(met)
    return pickle.loads(orders.function)()


def main() -> int:
    orders_fd, sock_fd = (int(word) for word in sys.argv[1:])
    orders = Orders(*pickle.loads(contents(orders_fd)))
    os.close(orders_fd)
    sock = socket.socket(fileno=sock_fd)
    sock.set_inheritable(False)  # what it starts has no say
    channel = open_channel(sock, orders.pickler)
    try:
        channel.say(RETURNED, channel.dumps(_call(orders, channel)))
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code == LEFT:
            raise  # it was told to
        traceback.print_exc()
        with contextlib.suppress(OSError):
            channel.say(RAISED, pickle.dumps(tuple(_failure(channel, error))))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
