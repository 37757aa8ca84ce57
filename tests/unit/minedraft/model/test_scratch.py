from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from minedraft.model.sampling import Position, SamplingRow, draw
from minedraft.model.scratch import scratch
from minedraft.types import RowParams

CPU = torch.device("cpu")


def test_same_use_gets_the_same_memory_and_grows_when_it_must():
    first = scratch("test", (2, 3), torch.float32, CPU)
    assert scratch("test", (3, 2), torch.float32, CPU).data_ptr() == first.data_ptr()
    assert scratch("test", (40, 50), torch.float32, CPU).shape == (40, 50)


def test_other_use_or_type_gets_other_memory():
    first = scratch("test", (2, 3), torch.float32, CPU)
    assert scratch("test 2", (2, 3), torch.float32, CPU).data_ptr() != first.data_ptr()
    assert scratch("test", (2, 3), torch.int64, CPU).data_ptr() != first.data_ptr()


def test_memory_made_in_inference_mode_can_be_written_outside_of_it():
    with torch.inference_mode():
        scratch("test 3", (2, 3), torch.float32, CPU)
    scratch("test 3", (2, 3), torch.float32, CPU).fill_(1.0)


def test_threads_do_not_share_it():
    """A drafter and a verifier in one process sample at the same time."""
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(6, 20_000, generator=generator) * 3 for _ in range(2)]
    params = [RowParams(temperature=1.0, top_p=p, seed=7) for p in (0.9, 1.0, 0.99)] * 2
    positions = [Position(SamplingRow(p, (1,))) for p in params]
    expected = [draw(logits, positions) for logits in batches]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            assert list(pool.map(draw, batches, [positions] * 2)) == expected
