# SPDX-License-Identifier: Apache-2.0
"""A worker of an elastic job: an actor with an agent of one place, and what the driver hears of it.

Its calls run in several threads, and none but listen() waits for what the job does.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Mapping
from typing import Any, Union

import ray

from .._agents import Agent, Contact, Ended, Orders, Said
from .._engines import Where

BEHIND = 256  # messages before the process waits for the driver
BATCH = 64
THREADS = 4

Word = Union[Said, Ended]


def _gpus() -> tuple[str, ...]:
    """This worker's, then the others of its node."""
    own = [str(gpu) for gpu in ray.get_gpu_ids()]
    node = ray.get_runtime_context().get_node_id()
    counts = [n["Resources"].get("GPU", 0) for n in ray.nodes() if n["NodeID"] == node]
    others = [str(i) for i in range(int(sum(counts)))] if all(g.isdigit() for g in own) else []
    return (*own, *(gpu for gpu in others if gpu not in own)) if own else ()


class AgentWorker:
    """An actor. begin() is called once."""

    def __init__(self) -> None:
        self._words: queue.Queue[Word] = queue.Queue(BEHIND)
        self._agent: Agent | None = None

    def where(self) -> Where:
        node = str(ray.get_runtime_context().get_node_id())
        return Where(node, socket.gethostname(), os.getpid(), list(ray.get_gpu_ids()))

    def begin(
        self, contact: Contact, orders: Orders, name: str, variables: Mapping[str, str]
    ) -> Where:
        """Starts the agent. name: of its host."""
        orders = orders._replace(gpus=_gpus())
        self._agent = Agent(contact, orders, name=name, variables=variables)
        threading.Thread(target=self._read, args=(self._agent,), daemon=True).start()
        return self.where()

    def _read(self, agent: Agent) -> None:
        word: Any = None
        while not isinstance(word, Ended):
            word = agent.next()
            self._words.put(word)

    def listen(self, timeout_s: float) -> list[Word]:
        """What was said since the last call; waits so long for something."""
        words: list[Word] = []
        try:
            words.append(self._words.get(timeout=timeout_s))
            while len(words) < BATCH:
                words.append(self._words.get_nowait())
        except queue.Empty:
            pass
        return words

    def leave(self) -> None:
        """Its process leaves the job at its next commit, then the agent ends."""
        if self._agent is not None:
            self._agent.leave()
