# SPDX-License-Identifier: Apache-2.0
"""halay._agents without an engine: heads, agents and what their processes return."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from conftest import environment
from watch import LATE_S, processes_with, until

from halay._agents import (
    LOGGED,
    MET,
    RAISED,
    RETURNED,
    Agent,
    Ended,
    Failure,
    Head,
    JobEnded,
    Orders,
)

pytestmark = pytest.mark.sampled


class Call:
    """A function with its arguments, as pickle takes it; the module is found by PYTHONPATH."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __call__(self):
        return self.function(*self.args)


def orders(function, *args):
    return Orders(pickle.dumps(Call(function, *args)))


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def said():
    """Reads an agent: what it says until that kind, or its end."""

    def read(agent, kind=None):
        heard, end = [], time.monotonic() + LATE_S
        while time.monotonic() < end:
            one = agent.next(1)
            heard += [one] if one is not None else []
            if isinstance(one, Ended) or (one is not None and one.kind == kind):
                return heard
        raise AssertionError(heard)

    return read


def rank_and_size(megabytes):
    import halay.arrays as ha
    from halay._agents import log

    ha.init()
    assert log({"pid": os.getpid()})
    return ha.rank(), ha.size(), b"x" * (megabytes << 20)


def wait_for_ever(raises=False):
    import halay.arrays as ha

    ha.init()
    if raises:
        raise ValueError("no batch")
    time.sleep(1000)


def test_results(said):
    with Head(3, agents=2, host="127.0.0.1", elastic_timeout_s=LATE_S, say=print) as head:
        assert head.contact.secret not in repr(head.contact) and head.status is None
        with (
            Agent(head.contact, orders(rank_and_size, 3), 2, name="one") as one,
            Agent(head.contact, orders(rank_and_size, 0), name="two") as two,
        ):
            heard = said(one) + said(two)
        assert head.wait(LATE_S) == 0
    assert [what.status for what in heard if isinstance(what, Ended)] == [0, 0]
    heard = [what for what in heard if not isinstance(what, Ended)]
    assert sorted(what.kind for what in heard) == sorted([MET, LOGGED, RETURNED] * 3)
    assert len({pickle.loads(what.value)["pid"] for what in heard if what.kind == LOGGED}) == 3
    for what in heard:
        if what.kind == RETURNED:
            rank, size, data = pickle.loads(what.value)
            assert (rank, size) == (what.rank, what.size) and size == 3
            assert len(data) in (3 << 20, 0)
    assert sorted(what.rank for what in heard if what.kind == RETURNED) == [0, 1, 2]


def test_is_closed_where_a_script_in_the_background_ignores_sigint(said):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with (
            Head(1, host="127.0.0.1", elastic_timeout_s=LATE_S, say=print) as head,
            Agent(head.contact, orders(wait_for_ever), name="one") as agent,
        ):
            said(agent, MET)
        assert agent._halayrun.status == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_raises_and_is_started_again(said):
    with (
        Head(
            1,
            host="127.0.0.1",
            elastic_timeout_s=LATE_S,
            cooldown_s=(0.1, 0.1),
            reset_limit=2,
            say=print,
        ) as head,
        Agent(head.contact, orders(wait_for_ever, True), 1) as agent,
    ):
        heard = said(agent)
        assert head.wait(LATE_S) not in (0, None)
        error = head.ended("Do something")
    raised = [Failure(*pickle.loads(what.value)) for what in heard[:-1] if what.kind == RAISED]
    assert len(raised) >= 3 and all(isinstance(one.exception(), ValueError) for one in raised)
    assert "no batch" in raised[0].traceback
    assert "Do something" in str(error) and error.said and error.status == head.status
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_leave(said):
    with Head(1, host="127.0.0.1", agents=1, elastic_timeout_s=LATE_S, say=print) as head:
        with Agent(head.contact, orders(wait_for_ever), variables={"WHO": "leaves"}) as agent:
            assert said(agent, MET)[-1].size == 1 and agent.next(0.1) is None
            agent.leave()  # while it is in no commit: SIGTERM ends it, and the agent
            assert isinstance(said(agent)[-1], Ended)
        assert not processes_with("WHO=leaves") and head.status is None
    assert head.status not in (0, None)


def test_too_few():
    with Head(2, host="127.0.0.1", elastic_timeout_s=1, say=print) as head:
        assert head.wait(LATE_S) == 1
        assert "0 of 2 agents have come" in str(head.ended())
    with (
        pytest.raises(JobEnded, match="Cannot assign requested address"),
        Head(1, host="192.0.2.1"),
    ):
        pass


DRIVER = """
import os, sys, time
sys.path.insert(0, {here!r})
from halay._agents import Agent, Head, MET
from test_agents import orders, wait_for_ever
with Head(1, host="127.0.0.1", elastic_timeout_s=60, say=lambda _: None) as head:
    with Agent(head.contact, orders(wait_for_ever)) as agent:
        while agent.next().kind != MET:
            pass
        print("met", flush=True)
        time.sleep(1000)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_who_has_started_it(number):
    word = f"WHO=outlived-{number}"
    script = DRIVER.format(here=os.path.dirname(__file__))
    env = {**os.environ, "WHO": word[4:]}
    driver = subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True
    )
    with driver:
        assert driver.stdout.readline() == "met\n"
        assert len(processes_with(word)) >= 4  # driver, head, agent, process: and their guards
        driver.send_signal(number)
        driver.wait(LATE_S)
    until(lambda: not processes_with(word))
