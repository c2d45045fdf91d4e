# SPDX-License-Identifier: Apache-2.0
"""What the library refuses at once has its reason in the exception, not only on standard error."""

import pytest
import torch
import torch.distributed as dist

import halay.distributed  # noqa: F401  # the back end
from halay import HalayError
from halay._core import lib, verdict_error


def rank_sends_to_itself():
    dist.init_process_group("halay", init_method="halay://")
    try:
        own = dist.get_rank()
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        for call in (backend.send, backend.recv):
            with pytest.raises(HalayError, match=rf"rank {own}: it has to be another rank of 2"):
                call([torch.ones(2)], own, 0)
    finally:
        dist.destroy_process_group()


def test_a_message_to_oneself(job):
    job(2, rank_sends_to_itself)


def test_texts_name_calls_of_python():
    text = str(verdict_error(lib.HALAY_EINVAL, "go on without it (halay_comm_shrink)"))
    assert text == "go on without it (halay.distributed.shrink())"
