# SPDX-License-Identifier: Apache-2.0
"""What differs between ranks, comes late, or leaves: an error on all ranks, soon, that says why."""

import time

import pytest
import torch
from conftest import ODD_RANKS

import halay.torch as hvd

pytestmark = pytest.mark.sampled

# How one rank deviates from the others, and what the text has to show of both sides.
DEVIATIONS = {
    "dtype": (
        lambda odd: hvd.allreduce(torch.ones(5, dtype=(torch.float32, torch.float64)[odd])),
        ["float32", "float64"],
    ),
    "count": (lambda odd: hvd.allreduce(torch.ones((17, 19)[odd])), ["17", "19"]),
    "shape": (
        lambda odd: hvd.allreduce(torch.ones(((17, 1311), (17, 23, 57))[odd])),
        ["[17, 1311]", "[17, 23, 57]"],
    ),
    "eight dimensions": (
        lambda odd: hvd.allreduce(
            torch.ones(((1, 2, 3, 1, 1, 1, 1, 2), (6, 1, 1, 1, 1, 1, 1, 2))[odd])
        ),
        ["[1, 2, 3, 1, 1, 1, 2]", "[6, 1, 1, 1, 1, 1, 2]"],
    ),
    "op": (lambda odd: hvd.allreduce(torch.ones(5), op=(hvd.Sum, hvd.Min)[odd]), ["sum", "min"]),
    "scale": (
        lambda odd: hvd.allreduce(torch.ones(5), op=hvd.Sum, prescale_factor=(2.0, 4.0)[odd]),
        ["2", "4"],
    ),
    "root": (lambda odd: hvd.broadcast(torch.ones(5), (0, 1)[odd]), ["rank 0", "rank 1"]),
    "broadcast count": (lambda odd: hvd.broadcast_(torch.ones((23, 29)[odd]), 0), ["23", "29"]),
    "broadcast shape": (
        lambda odd: hvd.broadcast_(torch.ones(((4, 6), (6, 4))[odd]), 0),
        ["[4, 6]", "[6, 4]"],
    ),
    "row shape": (
        lambda odd: hvd.allgather(torch.ones((1 + odd, *((2, 6), (12,))[odd]))),
        ["rows of [2, 6]", "rows of [12]"],
    ),
    "row": (lambda odd: hvd.allgather(torch.ones(2, (31, 37)[odd])), ["31", "37"]),
    "gather dtype": (
        lambda odd: hvd.allgather(torch.ones(2, dtype=(torch.int32, torch.uint8)[odd])),
        ["int32", "uint8"],
    ),
}


def rank_mismatch():
    for name, (call, sides) in DEVIATIONS.items():
        for culprit in range(hvd.size()):
            begin = time.monotonic()
            with pytest.raises(hvd.HalayMismatch) as caught:
                call(hvd.rank() == culprit)
            assert time.monotonic() - begin < 10, "ended by the deadline"
            error = caught.value
            assert error.name == "HALAY_EMISMATCH" and error.rank == hvd.rank()
            for side in sides:
                assert side in error.verdict, f"{name}: {side!r} is not in {error.verdict!r}"
            verdicts = hvd.allgather_object(error.verdict)
            assert len(set(verdicts)) == 1, f"{name}: {verdicts}"
            assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    own = f"add_process_set..{hvd.rank()}..: the ranks' calls differ.*with another list"
    with pytest.raises(hvd.HalayMismatch, match=own):
        hvd.add_process_set([hvd.rank()])


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_mismatch(job, nranks):
    job(nranks, rank_mismatch)


def rank_untouched():
    """An in-place tensor keeps its bytes when the operation is refused."""
    mine = torch.full((4 + hvd.rank(),), 3.0)
    with pytest.raises(hvd.HalayMismatch):
        hvd.allreduce_(mine, op=hvd.Sum, name="x")
    assert mine.tolist() == [3.0] * (4 + hvd.rank())


def test_refused_operation_changes_nothing(job):
    job(2, rank_untouched)


def rank_timeout():
    text = None
    if hvd.rank() == 0:
        begin = time.monotonic()
        with pytest.raises(hvd.HalayTimeout) as caught:
            hvd.allreduce(torch.ones(3), name="lonely")
        assert 3 < time.monotonic() - begin < 12
        text = caught.value.verdict
    else:
        time.sleep(6)  # in the middle between the end of that deadline and the end of the barrier's
    hvd.barrier()
    assert hvd.allreduce(torch.ones(1), name="next", op=hvd.Sum).item() == hvd.size()
    return text


def test_timeout_names_who_is_missing(job):
    text, _ = job(2, rank_timeout, env={"HALAY_DEADLINE": "4"})
    assert "lonely" in text and "not submitted by rank 1" in text


def rank_leaver():
    hvd.barrier()
    if hvd.rank() == 1:
        hvd.shutdown()
        return "left"
    begin = time.monotonic()
    with pytest.raises(hvd.HalayError) as caught:
        hvd.allreduce(torch.ones(3), name="waiting")
    assert time.monotonic() - begin < 10
    hvd.shutdown()
    return caught.value.verdict


def test_leaver_is_named(job):
    stayed, left = job(2, rank_leaver)
    assert left == "left"
    assert "1" in stayed


def rank_unpicklable():
    bad = (x for x in ()) if hvd.rank() == 0 else None
    with pytest.raises((TypeError, hvd.HalayError), match="pickle"):
        hvd.broadcast_object(bad, 0)
    with pytest.raises((TypeError, hvd.HalayError), match="pickle"):
        hvd.allgather_object(bad)
    assert hvd.broadcast_object(hvd.rank(), 1) == 1


def test_object_that_cannot_be_pickled(job):
    job(2, rank_unpicklable)
