# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm against BatchNorm over the joined batch."""

import pytest
import torch
from conftest import ODD_RANKS

import halay.torch as hvd

PLAIN = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}


def near(a, b, tolerance=1e-10):
    assert (a - b).abs().max() <= tolerance, (a - b).abs().max()


def compare(trailing, counts, **options):
    """counts: rows of each rank. Two steps, then evaluation."""
    me = hvd.rank()
    generator = torch.Generator().manual_seed(5)
    ours = hvd.SyncBatchNorm(4, **options).double()
    plain = PLAIN[2 + len(trailing)](4, **options).double()
    for step in range(2):
        joined = torch.randn(sum(counts), 4, *trailing, generator=generator, dtype=torch.float64)
        joined += 100  # far from zero: a variance out of sums of squares would be worthless
        upstream = torch.randn(joined.shape, generator=generator, dtype=torch.float64)
        whole = joined.clone().requires_grad_()
        mine = joined.split(counts)[me].clone().requires_grad_()
        expected, found = plain(whole), ours(mine)
        near(found, expected.split(counts)[me]) if mine.numel() else None
        expected.backward(upstream)
        found.backward(upstream.split(counts)[me])
        if mine.numel():
            near(mine.grad, whole.grad.split(counts)[me])
        for a, b in zip(ours.parameters(), plain.parameters()):
            near(hvd.allreduce(a.grad, op=hvd.Sum), b.grad)
            a.grad = b.grad = None
        for (name, a), b in zip(ours.named_buffers(), plain.buffers()):
            assert torch.equal(a, b) if name == "num_batches_tracked" else near(a, b) is None
        assert step == 0 or all(
            torch.equal(other, found_mean)
            for found_mean in [ours.running_mean]
            if found_mean is not None
            for other in hvd.allgather(found_mean[None])
        )
    ours.eval(), plain.eval()
    if ours.running_mean is not None:
        near(ours(joined), plain(joined))


def rank_batch_norm():
    nranks = hvd.size()
    even, uneven = [3] * nranks, [5, *range(nranks - 1)]  # the second rank has nothing
    compare((), even)
    compare((3, 2), uneven)
    compare((7,), uneven, momentum=None)
    compare((3, 2), even, affine=False)
    compare((3, 2), even, track_running_stats=False)
    half = hvd.SyncBatchNorm(4).bfloat16()
    assert half(torch.randn(3, 4).bfloat16()).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="needs"):
        half(torch.randn(3, 5))


@pytest.mark.parametrize("nranks", ODD_RANKS)
def test_batch_norm(job, nranks):
    job(nranks, rank_batch_norm)


def test_alone(alone):
    ours, plain = alone.SyncBatchNorm(4), torch.nn.BatchNorm1d(4)
    x = torch.randn(6, 4)
    assert torch.equal(ours(x), plain(x))
    assert torch.equal(ours.running_var, plain.running_var)
