from __future__ import annotations

import os

import pytest
import torch

from minedraft.model.kernels.c.maker import CKernels


@pytest.mark.parametrize("threads", [1, 2])
def test_a_wide_step_has_the_same_bits(threads):
    core = max(os.sched_getaffinity(0))
    kernels = CKernels(torch.float32, threads, [core])
    assert kernels.num_spare == 1
    torch.manual_seed(0)
    stored = kernels.store(torch.randn(257, 96))
    x = torch.randn(40, 96)
    narrow = kernels.linear(x, stored)
    for is_wide in (True, False, True):
        kernels.widen(is_wide=is_wide)
        assert torch.equal(kernels.linear(x, stored), narrow)


def test_without_spare_cores_nothing_gets_wider():
    kernels = CKernels(torch.float32, 1)
    kernels.widen(is_wide=True)
    assert kernels.num_spare == 0
