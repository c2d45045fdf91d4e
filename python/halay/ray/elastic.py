# SPDX-License-Identifier: Apache-2.0
"""A job of Ray's actors whose ranks come and go (docs/ray.md, docs/decisions/elastic.md#0104).

The head beside the driver decides who is which rank, when ranks meet and when the job ends. Here is
decided where there are workers: one for each place that the discovery names, as far as max_workers
allows; another in the place of one that is lost; none more where the program itself has failed.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray

from .._agents import LOGGED, MET, RAISED, RETURNED, Ended, Failure, Head, Orders, Said
from .._engines import COOLDOWN_S, Cooldown, Loss, Where, WorkerLost
from ..errors import HorovodInternalError
from ..horovod.discovery import HostDiscovery
from .agents import THREADS, AgentWorker
from .refs import SHUT_DOWN, is_lost, line_of, outcome

DISCOVER_S = 1.0
TICK_S = 0.2
LISTEN_S = 5.0  # a call that waits for words ends after so long, and another follows
END_S = 5  # in which agents have ended after it
LAST_WORDS_S = 10  # in which workers have told what they had to when the head has ended
IN_VAIN = 3  # so often all places may fail before ranks have met for the first time
NODE_SHARE = 0.001  # of the resource node:ADDRESS, which binds a worker to it


@dataclass(frozen=True)
class Terms:
    """What an elastic executor was asked for. cpus, gpus: of a worker."""

    least: int
    most: int | None
    reset_limit: int | None
    elastic_timeout_s: float
    cooldown_s: Sequence[float] | None
    cpus: float
    gpus: float


class Place(NamedTuple):
    """One of those that the discovery has named."""

    host: str
    number: int


class _Worker:
    """The actor in a place, and what is known of it."""

    def __init__(self, place: Place, actor: Any) -> None:
        self.place, self.actor = place, actor
        self.since_s = time.monotonic()
        self.node = place.host
        self.rank = -1  # that it had last
        self.has_begun = self.leaves = self.has_returned = False


def find_places(discovery: HostDiscovery, before: list[Place] | None) -> list[Place]:
    """What the discovery names. Where it fails: what it has named before, and a warning."""
    try:
        hosts = discovery.find_available_hosts_and_slots()
        return [Place(str(host), i) for host, slots in hosts.items() for i in range(int(slots))]
    except Exception as error:
        if before is None:
            raise
        warnings.warn(f"the discovery of hosts has failed: {error!r}", stacklevel=2)
        return before


class Job:
    """One run. Raises what ends it; whatever that is, no actor is left."""

    def __init__(
        self,
        head: Head,
        terms: Terms,
        discovery: HostDiscovery,
        orders: Orders,
        variables: Mapping[str, str],
        callbacks: Iterable[Callable[[Any], Any]],
        is_over: threading.Event,
    ) -> None:
        self._head, self._terms, self._discovery = head, terms, discovery
        self._orders, self._variables = orders, dict(variables)
        self._callbacks, self._is_over = list(callbacks), is_over
        self._workers: dict[Place, _Worker] = {}
        self._calls: dict[Any, _Worker] = {}
        self._places: list[Place] | None = None
        self._spent: set[Place] = set()  # where the program itself has failed
        self._cooldowns: dict[Place, Cooldown] = {}
        self._cold_s: dict[Place, float] = {}  # until then they stay empty
        self._raised: list[tuple[_Worker, Failure]] = []
        self._returned: list[Said] = []
        self._losses: list[Loss] = []
        self._has_met = False
        self._in_vain = 0
        self._discover_s = 0.0

    def run(self) -> list[Any]:
        """What the ranks that there were at the end have returned."""
        try:
            while self._head.status is None:
                if self._is_over.is_set():
                    raise RuntimeError(SHUT_DOWN)
                self._settle()
                self._hear(TICK_S)
            end_s = time.monotonic() + LAST_WORDS_S
            while self._calls and time.monotonic() < end_s:
                self._hear(TICK_S)
            return self._values()
        finally:
            try:
                self._let_end()
            finally:
                for worker in self._workers.values():
                    ray.kill(worker.actor, no_restart=True)

    def _let_end(self) -> None:
        """With the head agents end, and all that their processes have started; one that Ray kills
        with its actor cannot."""
        self._head.stop()
        calls = {ref: worker for ref, worker in self._calls.items() if worker.has_begun}
        end_s = time.monotonic() + END_S
        while calls and time.monotonic() < end_s:
            for ref in ray.wait(list(calls), timeout=TICK_S)[0]:
                worker = calls.pop(ref)
                words, error = outcome(ref)
                if error is None and not any(isinstance(word, Ended) for word in words):
                    calls[worker.actor.listen.remote(LISTEN_S)] = worker

    # -------------------------------------------------------------- workers

    def _settle(self) -> None:
        """Workers where there are places and none yet; those without a place are to leave."""
        if time.monotonic() >= self._discover_s:
            self._places = find_places(self._discovery, self._places)
            self._discover_s = time.monotonic() + DISCOVER_S
        assert self._places is not None
        places = [place for place in self._places if place not in self._spent]
        for worker in [w for place, w in self._workers.items() if place not in places]:
            if not worker.has_begun:  # Ray may never have room for it
                self._dismiss(worker)
            elif not worker.leaves:
                worker.leaves = True
                worker.actor.leave.remote()
        if self._returned:
            return  # the job is finishing
        for place in places:
            if self._terms.most is not None and len(self._workers) >= self._terms.most:
                break
            if place not in self._workers and time.monotonic() >= self._cold_s.get(place, 0):
                self._hire(place)

    def _hire(self, place: Place) -> None:
        cls = ray.remote(AgentWorker).options(
            num_cpus=self._terms.cpus,
            num_gpus=self._terms.gpus,
            resources={f"node:{place.host}": NODE_SHARE},
            scheduling_strategy="DEFAULT",
            max_concurrency=THREADS,
        )
        worker = self._workers[place] = _Worker(place, cls.remote())
        begun = worker.actor.begin.remote(
            self._head.contact, self._orders, place.host, self._variables
        )
        self._calls[begun] = worker

    def _dismiss(self, worker: _Worker) -> None:
        ray.kill(worker.actor, no_restart=True)
        del self._workers[worker.place]
        self._calls = {ref: other for ref, other in self._calls.items() if other is not worker}

    def _lose(self, worker: _Worker, why: str) -> None:
        self._dismiss(worker)
        if worker.leaves:
            return
        now, place = time.monotonic(), worker.place
        range_s = self._terms.cooldown_s or COOLDOWN_S
        cooldown = self._cooldowns.setdefault(place, Cooldown(*range_s))
        self._cold_s[place] = now + cooldown.after(now - worker.since_s)
        self._losses.append(Loss(worker.rank, worker.node, why))
        self._in_vain += not self._has_met
        if self._in_vain >= IN_VAIN * self._terms.least:
            self._head.stop()

    # -------------------------------------------------------------- what they say

    def _hear(self, timeout_s: float) -> None:
        if not self._calls:
            self._head.wait(timeout_s)
            return
        for ref in ray.wait(list(self._calls), timeout=timeout_s)[0]:
            worker = self._calls.pop(ref, None)
            if worker is None:
                continue  # dismissed meanwhile
            found, error = outcome(ref)
            if error is not None and not is_lost(error):
                raise error  # no agent can be started there
            if error is not None:
                self._lose(worker, line_of(error))
                continue
            words = found if isinstance(found, list) else []
            if isinstance(found, Where):
                worker.has_begun, worker.node = True, found.host
            if not any(isinstance(word, Ended) for word in words):
                self._calls[worker.actor.listen.remote(LISTEN_S)] = worker
            for word in words:
                self._take(worker, word)

    def _take(self, worker: _Worker, word: Said | Ended) -> None:
        if isinstance(word, Ended):
            if self._head.wait(0) is None and not worker.has_returned:
                self._lose(worker, f"its agent ended with status {word.status}")
            else:
                self._dismiss(worker)
        elif word.kind == MET:
            self._has_met, worker.rank = True, word.rank
        elif word.kind == LOGGED:
            value = pickle.loads(word.value)
            for callback in self._callbacks:
                callback(value)
        elif word.kind == RETURNED:
            worker.has_returned = True
            self._returned.append(word)
        elif word.kind == RAISED:
            worker.rank = word.rank
            self._fail(worker, Failure(*pickle.loads(word.value)))

    def _fail(self, worker: _Worker, failure: Failure) -> None:
        """The process has raised. The head starts it again, unless it was the program's fault."""
        if isinstance(failure.exception(), HorovodInternalError):
            return
        self._raised.append((worker, failure))
        if self._terms.cooldown_s is not None:
            return
        self._spent.add(worker.place)
        worker.leaves = True
        worker.actor.leave.remote()
        left = [place for place in self._places or () if place not in self._spent]
        if len(left) < self._terms.least:
            self._head.stop()

    # -------------------------------------------------------------- the end

    def _values(self) -> list[Any]:
        if self._head.status == 0:
            late = self._losses[-1:] if self._is_one_missing() else []
            if late:
                raise WorkerLost(late, "What it has returned is lost with it.")
            said = sorted(self._returned, key=lambda word: word.rank)
            return [pickle.loads(word.value) for word in said]
        if self._raised:
            worker, failure = self._raised[-1]
            error = failure.exception()
            if hasattr(error, "add_note"):
                error.add_note(
                    f"raised by rank {worker.rank} on {worker.node}\n{failure.traceback}"
                )
            raise error from self._head.ended()
        remedy = ""
        if not self._has_met:
            room = ray.available_resources()
            free = {name: room.get(name, 0) for name in ("CPU", "GPU")}
            remedy = (
                f"{len(self._workers)} workers of {self._terms.cpus:g} CPUs and "
                f"{self._terms.gpus:g} GPUs were asked for, min_workers is {self._terms.least}; "
                f"free are {free}: ask for less, add nodes, or give a longer "
                "elastic_timeout"
            )
        if self._losses:
            last = self._losses[-1]
            remedy = f"{remedy}{remedy and '. '}Lost last: a worker on {last.host}: {last.cause}"
        raise self._head.ended(remedy)

    def _is_one_missing(self) -> bool:
        sizes = [word.size for word in self._returned]
        return bool(self._losses) and len(self._returned) < min(sizes, default=0)


def wait_for_places(discovery: HostDiscovery, terms: Terms) -> None:
    """TimeoutError if there are fewer than min_workers for elastic_timeout."""
    end_s = time.monotonic() + terms.elastic_timeout_s
    places: list[Place] | None = None
    while True:
        places = find_places(discovery, places)
        if len(places) >= terms.least:
            return
        if time.monotonic() >= end_s:
            raise TimeoutError(
                f"{len(places)} places for workers of {terms.cpus:g} CPUs and {terms.gpus:g} GPUs "
                f"are there after {terms.elastic_timeout_s:g} s, and min_workers is {terms.least}: "
                "ask for less, add nodes, or give a longer elastic_timeout"
            )
        time.sleep(min(DISCOVER_S, max(end_s - time.monotonic(), 0.01)))


def run_job(
    terms: Terms,
    discovery: HostDiscovery,
    orders: Orders,
    variables: Mapping[str, str],
    callbacks: Iterable[Callable[[Any], Any]],
    verbose: bool,
    is_over: threading.Event | None = None,
) -> list[Any]:
    """Head and job, from beginning to end, or until is_over is set."""

    def say(line: str) -> None:
        if verbose:
            print(line, file=sys.stderr, flush=True)

    with Head(
        terms.least,
        terms.most,
        host=ray.util.get_node_ip_address(),
        reset_limit=terms.reset_limit,
        elastic_timeout_s=terms.elastic_timeout_s,
        cooldown_s=terms.cooldown_s,
        say=say,
    ) as head:
        given = (terms, discovery, orders, variables, callbacks, is_over or threading.Event())
        return Job(head, *given).run()
