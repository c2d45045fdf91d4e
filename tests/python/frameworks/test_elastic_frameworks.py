# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of TensorFlow and Keras under halayrun: ranks are lost, leave and join."""

import json
import sys
from pathlib import Path

import pytest
from conftest import HALAYRUN, environment, run
from elastic_any import losses
from elastic_events import check, commits_of, events_of
from test_keras import settings

pytestmark = pytest.mark.sampled

HERE = Path(__file__).resolve().parent
EPOCH = 5  # batches, of keras_elastic.py
LOOP = "loop"  # tensorflow_elastic.py; all others are Keras on that back end
KERAS = ("jax", "tensorflow", "torch", "legacy")
ALL = [LOOP, *(pytest.param(backend, marks=pytest.mark.long) for backend in KERAS)]
PRECISION = 1e-4  # float32; the loop's learning rate is


def train(folder, kind, options, events, batches):
    """As test_elastic_jobs.py: commits by meeting and batch, and what halayrun has printed."""
    command = [str(HALAYRUN), *options.split(), sys.executable]
    if kind == LOOP:
        script, end, env = "tensorflow_elastic.py", batches, settings("tensorflow")
    else:
        script, end, env = "keras_elastic.py", batches // EPOCH, settings(kind)
    command += [str(HERE / script), str(folder), json.dumps(events), str(end)]
    status, text = run(command, 300, environment(env))
    assert status == 0, f"exit status {status}\n{text}"
    return commits_of(folder), text


@pytest.mark.parametrize("kind", ALL)
def test_rank_0_is_killed_and_one_joins(tmp_path, kind):
    events = [[3, 0, "kill"], [11, 0, "wait"]]
    options = "-np 2 --min-np 1 --blacklist-cooldown-range 0.1 1"
    commits, text = train(tmp_path, kind, options, events, 20)
    assert check(commits, losses(20), text, PRECISION) == 2, text
    assert events_of(tmp_path) == ["event-11-wait", "event-3-kill"]
    sizes = [line["size"] for key in sorted(commits) for line in commits[key][:1]]
    assert sizes[0] == 2 and 1 in sizes and sizes[-1] == 2


@pytest.mark.long
@pytest.mark.parametrize("what", ["kill", "raise", "leave"])
@pytest.mark.parametrize("kind", [LOOP, "jax", "tensorflow", "torch", "legacy"])
def test_one_event(tmp_path, kind, what):
    """Three ranks, of which one ends in the middle of an epoch; the others go on without it."""
    options = "-np 3 --min-np 2 --blacklist-cooldown-range 100 100"
    commits, text = train(tmp_path, kind, options, [[8, 1, what]], 20)
    assert check(commits, losses(20), text, PRECISION) == 2, text
    assert events_of(tmp_path) == [f"event-8-{what}"]
    if what == "leave":  # at the next commit: no step is lost
        batches = [batch for _, batch in sorted(commits)]
        assert batches == sorted(set(batches)), batches
