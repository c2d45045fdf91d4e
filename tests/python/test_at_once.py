# SPDX-License-Identifier: Apache-2.0
"""A named allreduce that is waited for goes a short way: with the long way's results and errors."""

import sys
import threading
import time

import pytest
import torch
from conftest import RANKS
from test_collectives import COMPLEX, FLOATS, INTEGERS, same, small

import halay.torch as hvd
from halay import _session
from halay.torch import _at_once


class Own(torch.Tensor):
    """No plain tensor."""


def remembered():
    return len(_session.session().members[0].said)


def alike(found, expected):
    assert found.shape == expected.shape
    flat = [t.detach().resolve_conj().resolve_neg().reshape(-1) for t in (found, expected)]
    same(*flat)


def both_ways(name, tensor, **how):
    """The short way or what it leaves to the long one, three times, and the long way by itself."""
    kept = tensor.detach().clone()
    expected = hvd.synchronize(hvd.allreduce_async(tensor.detach(), **how))
    for _ in range(3):
        found = hvd.allreduce(tensor, name=name, **how)
        alike(found, expected)
        assert found.data_ptr() != tensor.data_ptr() or tensor.numel() == 0
        alike(tensor, kept)
        target = tensor.detach().clone()  # with the tensor's strides, if nothing overlaps
        version = target._version
        assert hvd.allreduce_(target, name=name, **how) is target
        alike(target, expected)
        assert target._version > version


def rank_dtypes():
    for dtype in FLOATS + INTEGERS + COMPLEX:
        mine = small(hvd.rank(), dtype)
        for op in (hvd.Average, hvd.Sum, hvd.Product):
            both_ways(f"{dtype}.{op}", mine, op=op)
        both_ways(f"{dtype}.scaled", mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
        both_ways(f"{dtype}.default", mine)
    both_ways("bool", torch.tensor([hvd.rank() == 0, True]), op=hvd.Max)
    both_ways("adasum", small(hvd.rank(), torch.float32), op=hvd.Adasum)
    with pytest.deprecated_call():
        hvd.allreduce(torch.ones(1), average=True, name="average")


def rank_tensors():
    plain = torch.arange(24.0).reshape(2, 3, 4) + hvd.rank()
    before = remembered()
    for at in range(3):  # the same name with other shapes and types, in turn
        both_ways("turns", plain + at)
        both_ways("turns", plain.flatten() - at)
        both_ways("turns", plain.int() * at)
    assert remembered() == before + 3
    both_ways("scalar", torch.tensor(1.5 + hvd.rank()))
    both_ways("parameter", torch.nn.Parameter(plain.clone(), requires_grad=False))
    both_ways("dimensions", plain.reshape((1,) * 8 + (24,)))
    before = remembered()
    both_ways("empty", torch.empty(0, 3))
    both_ways("gaps", plain.transpose(0, 2))
    both_ways("part", plain[:, :, 1])
    both_ways("conjugate", torch.complex(plain, -plain).conj())
    both_ways("negative", torch.complex(plain, -plain).conj().imag)
    both_ways("own", plain.as_subclass(Own))
    assert remembered() <= before + 3  # of the three in pieces: their copies in place
    with torch.inference_mode():
        inferred = plain.clone()
        hvd.allreduce_(inferred, name="inferred", op=hvd.Max)
        assert torch.equal(hvd.allreduce(inferred, name="inferred"), inferred)


def rank_graph():
    weight = torch.ones(3, requires_grad=True)
    for _ in range(3):
        with torch.no_grad():
            assert not hvd.allreduce(weight, name="w").requires_grad
        reduced = hvd.allreduce(weight, name="w", op=hvd.Sum)
        assert reduced.requires_grad
        weight.grad = None
        reduced.sum().backward()
        assert weight.grad.tolist() == [hvd.size()] * 3
    saved = torch.ones(3)
    product = (weight * saved).sum()
    hvd.allreduce_(saved, name="w", op=hvd.Max)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def rank_errors():
    me, last = hvd.rank(), hvd.size() - 1
    for _ in range(3):
        found = hvd.allreduce(torch.ones(2, 3), name="e", op=hvd.Sum)
        assert found.eq(hvd.size()).all()
        with pytest.raises(hvd.HalayMismatch, match=r"'allreduce\.e'.*\[1, 3\]"):
            hvd.allreduce(torch.ones(1 if me == last else 2, 3), name="e", op=hvd.Sum)
    for bad in ({"op": 17}, {"op": hvd.Max, "prescale_factor": 2.0}):
        with pytest.raises(ValueError):
            hvd.allreduce_(torch.ones(2, 3), name="e", **bad)
    with pytest.raises(ValueError, match="shorten it"):
        hvd.allreduce(torch.ones(1), name="n" * 300)
    with pytest.raises(TypeError, match=r"needs a torch\.Tensor"):
        hvd.allreduce([1.0], name="list")
    with pytest.raises(ValueError, match="meta"):
        hvd.allreduce_(torch.ones(1, device="meta"), name="e")
    with pytest.raises(hvd.HalayError, match=r"'allreduce\.e': .*EINVAL"):
        hvd.allreduce(torch.ones(1), name="e", op=hvd.Sum, prescale_factor=float("inf"))
    handle = hvd.allreduce_async(torch.ones(2, 3), name="e", op=hvd.Sum)
    with pytest.raises(hvd.DuplicateName, match=r"allreduce\.e"):
        hvd.allreduce(torch.ones(2, 3), name="e", op=hvd.Sum)
    hvd.synchronize(handle)
    assert hvd.allreduce(torch.ones(2, 3), name="e", op=hvd.Sum).eq(hvd.size()).all()


def rank_threads():
    """Threads call at the same time; while one waits for a late rank, the others run."""
    failures = []

    def call(number):
        try:
            for turn in range(30):
                given = torch.full((5,), float(number * turn + hvd.rank()))
                found = hvd.allreduce(given, name=f"of.{number}", op=hvd.Max)
                assert found.eq(number * turn + hvd.size() - 1).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    if hvd.rank() == 0:
        time.sleep(0.2)
    hvd.allreduce(torch.ones(1), name="late")
    for thread in threads:
        thread.join()
    assert not failures, failures


def rank_sets():
    pair = hvd.add_process_set([0, hvd.size() - 1])
    for turn in range(3):
        given = torch.full((2,), float(turn + hvd.rank()))
        if pair.included():
            found = hvd.allreduce(given, name="s", op=hvd.Sum, process_set=pair)
            assert found.eq(2 * turn + hvd.size() - 1).all()
        else:
            with pytest.raises(ValueError, match="is not in process set"):
                hvd.allreduce(given, name="s", op=hvd.Sum, process_set=pair)
        assert hvd.allreduce(given, name="s", op=hvd.Min).eq(turn).all()
    hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="is not in use"):
        hvd.allreduce(torch.ones(2), name="s", process_set=pair)


def rank_bounds():
    """What is remembered is bounded, and a call makes no object that stays."""
    _at_once._MOST = 5
    for at in range(12):
        hvd.allreduce_(torch.ones(1), name=f"many.{at}", op=hvd.Max)
        assert 0 < remembered() <= 5
    given = torch.ones(4)
    for _ in range(10):
        hvd.allreduce_(given, name="same", op=hvd.Max)
    before = sys.getallocatedblocks()
    for _ in range(2000):
        hvd.allreduce_(given, name="same", op=hvd.Max)
    assert sys.getallocatedblocks() - before < 100


def rank_at_once():
    rank_dtypes()
    rank_tensors()
    rank_graph()
    rank_errors()
    rank_threads()
    rank_bounds()
    hvd.shutdown()
    hvd.init()  # a session of its own
    assert hvd.allreduce(torch.ones(2, 3), name="e", op=hvd.Sum).eq(hvd.size()).all()
    hvd.shutdown()
    with pytest.raises(hvd.NotInitialized):
        hvd.allreduce(torch.ones(2, 3), name="e")
    hvd.init()


@pytest.mark.parametrize("nranks", RANKS)
def test_at_once(job, nranks):
    job(nranks, rank_at_once)


def test_sets(job):
    job(3, rank_sets)
