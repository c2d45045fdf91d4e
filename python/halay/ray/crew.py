# SPDX-License-Identifier: Apache-2.0
"""The actors of an executor: who of them is which rank, who is lost, and who takes their place.

Invariant: whatever the workers do, collect() comes back at most timeout_s after the first failure.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import ray

from .._engines import Loss, Where, WorkerLost, by_node, numbers, reason, told
from ..errors import HorovodInternalError
from .placement import Placement
from .refs import SHUT_DOWN, is_lost, line_of, outcome

LEAVE_S = 5  # so long others may still need a worker whose call has failed
GOODBYE_S = 5


class Member:
    """A worker's place among the others; actor is None until there is one."""

    def __init__(self, bundle: int) -> None:
        self.bundle = bundle
        self.actor: Any = None
        self.where = Where("", "", 0, [])


class Crew:
    """The members, by rank."""

    def __init__(self, placement: Placement, timeout_s: float, shim: bool) -> None:
        self.members = [Member(bundle) for bundle in placement.bundles]
        self.broken = True  # the job that the members are in, if any, is unusable
        self.unwatched = False  # members may be busy with calls that nobody waits for
        self._collecting = 0
        self._is_dismissed = False
        self._placement = placement
        self._timeout_s = max(timeout_s, 2 * LEAVE_S)
        self._shim = shim

    def actors(self) -> list[Any]:
        return [member.actor for member in self.members]

    def hire(self, timeout_s: float) -> None:
        """An actor for each member that has none. New members come after the others."""
        new = [member for member in self.members if member.actor is None]
        for member in new:
            member.actor = self._placement.new_actor(member.bundle, self._shim)
        member_of = {member.actor.where.remote(): member for member in new}
        refs = list(member_of)
        late = ray.wait(refs, num_returns=len(refs), timeout=timeout_s)[1] if refs else []
        reason: Exception | None = None
        if late:
            reason = TimeoutError(
                f"{len(late)} of {len(refs)} workers have not started in {timeout_s:g} s: is there "
                f"room for them? Free are {ray.available_resources()}"
            )
        for ref, member in member_of.items():
            where, error = (None, reason) if ref in late else outcome(ref)
            if where is not None:
                member.where = where
            else:
                self._drop(member)
                reason = reason or error
        if reason is not None:
            raise reason
        self.members = [m for m in self.members if m not in new] + new
        # Rank 0 is one that was there before, if there is any.
        self.members = [self.members[i] for i in by_node(self._places())]

    def _places(self) -> list[Where]:
        return [member.where for member in self.members]

    def assign(self, variables: Mapping[str, str], timeout_s: float) -> None:
        """Makes the members the ranks of a new job, which meets where rank 0 says."""
        address = ray.get(self.members[0].actor.meeting_place.remote(), timeout=timeout_s)
        secret, size = secrets.token_hex(16), len(self.members)
        refs = []
        for rank, member in enumerate(self.members):
            actor = member.actor
            own = {**numbers(rank, self._places()), **variables}
            refs.append(actor.update_env_vars.remote(own))
            refs.append(actor.become.remote(rank, size, address, secret))
        ray.get(refs, timeout=timeout_s)
        self.broken = False

    def look(self) -> None:
        """Notices who is lost, or does not answer though it has nothing to do."""
        alive = [member for member in self.members if member.actor is not None]
        refs = [member.actor.node_id.remote() for member in alive]
        timeout = None if self.unwatched or self._collecting else self._timeout_s
        mute = ray.wait(refs, num_returns=len(refs), timeout=timeout)[1] if refs else []
        self.unwatched = False
        for member, ref in zip(alive, refs):
            if ref in mute or outcome(ref)[1] is not None:
                self._drop(member)

    def _drop(self, member: Member) -> None:
        ray.kill(member.actor, no_restart=True)  # it may be one that does not answer
        member.actor = None
        self.broken = True

    def collect(self, refs: list[Any]) -> list[Any]:
        """What the members' calls returned, by rank. Raises the reason if one did not.

        Where this is interrupted, those that have not returned are ended: nothing else stops them.
        """
        self._collecting += 1
        try:
            return self._collect(refs)
        except KeyboardInterrupt:
            done = ray.wait(refs, num_returns=len(refs), timeout=0)[0]
            for member, ref in zip(self.members, refs):
                if ref not in done and member.actor is not None:
                    self._drop(member)
            raise
        finally:
            self._collecting -= 1

    def _collect(self, refs: list[Any]) -> list[Any]:
        rank_of = {ref: rank for rank, ref in enumerate(refs)}
        results: list[Any] = [None] * len(refs)
        errors: dict[int, Exception] = {}
        pending, left, end_s = list(refs), False, float("inf")
        leave_s = end_s
        while pending and time.monotonic() < end_s:
            until_s = min(end_s, leave_s)
            timeout = None if not errors else max(until_s - time.monotonic(), 0)
            done, pending = ray.wait(pending, timeout=timeout)
            for ref in done:
                results[rank_of[ref]], error = outcome(ref)
                if error is not None:
                    if self._is_dismissed:
                        raise RuntimeError(SHUT_DOWN)
                    if not errors:
                        leave_s = time.monotonic() + LEAVE_S
                        end_s = time.monotonic() + self._timeout_s
                    errors[rank_of[ref]] = error
            if pending and not left and time.monotonic() >= leave_s:
                left, leave_s = True, float("inf")
                self._let_leave(errors)
        if errors:
            self._raise(errors, [rank_of[ref] for ref in pending])
        return results

    def _let_leave(self, errors: dict[int, Exception]) -> None:
        """Whose call has failed leaves the job: who waits for it there is told so by a verdict."""
        self.broken = True
        for rank, error in errors.items():
            if not is_lost(error):
                self.members[rank].actor.leave.remote()

    def _raise(self, errors: dict[int, Exception], mute: list[int]) -> NoReturn:
        """Whose call failed: errors, in the order in which they came; who never came back: mute."""
        self.broken = self.broken or any(
            isinstance(error, HorovodInternalError) for error in errors.values()
        )
        hosts = [member.where.host for member in self.members]
        losses = [(rank, line_of(error)) for rank, error in errors.items() if is_lost(error)]
        why = (
            f"no word from it {self._timeout_s:g} s after the failure of rank {next(iter(errors))}"
        )
        losses += [(rank, why) for rank in mute]
        for rank, _ in losses:
            self._drop(self.members[rank])
        cause = reason(errors, hosts)[1]
        if losses:
            summaries = {r: line_of(e) for r, e in errors.items() if not is_lost(e)}
            then = "The next run() begins with new workers in the place of those that are lost"
            raise WorkerLost(
                [Loss(rank, hosts[rank], why) for rank, why in losses], told(summaries, then)
            ) from cause
        raise cause

    def dismiss(self) -> None:
        """Ends all actors; those that are idle leave their job first, and say nothing."""
        self._is_dismissed = True
        alive = [member.actor for member in self.members if member.actor is not None]
        if alive:
            goodbyes = [actor.leave.remote() for actor in alive]
            ray.wait(goodbyes, num_returns=len(goodbyes), timeout=GOODBYE_S)
        for actor in alive:
            ray.kill(actor, no_restart=True)
        self.members = []
        self._placement.remove()
