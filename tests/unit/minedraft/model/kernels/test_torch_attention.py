"""Paged attention in plain torch: groups, spans, masks, products."""

from __future__ import annotations

import pytest
import torch

from minedraft.model.attention import AttentionOptions
from minedraft.model.batch import RowInput
from minedraft.model.kernels.torch_attention import StepPlan, _attend, _products_pay
from minedraft.model.step_meta import plan_step

CPU = torch.device("cpu")


def plan(rows, block_size=4):
    return StepPlan(plan_step(rows, block_size=block_size, device=CPU), block_size)


def test_verify_rows_share_a_group_and_prefill_chunks_stand_alone():
    rows = [
        RowInput([1] * 60, 0, range(15), 1),
        RowInput([2, 3], 8, range(20, 23), 2),
        RowInput([4] * 5, 4, range(30, 33), 5),
    ]
    short, long = plan(rows).groups
    assert (short.num_rows, short.query_len, short.is_long) == (2, 5, False)
    assert (long.num_rows, long.query_len, long.is_long) == (1, 60, True)
    assert short.tokens.tolist() == [60, 61, 62, 63, 64, 65, 66]
    assert short.pad_index.tolist() == [60, 61, 61, 61, 61, 62, 63, 64, 65, 66]
    assert short.keep_index.tolist() == [0, 1, 5, 6, 7, 8, 9]
    assert long.tokens == slice(0, 60)


def test_rows_of_one_length_that_are_the_whole_step_are_not_copied():
    (group,) = plan([RowInput([1, 2], 3, [0, 1], 1), RowInput([3, 4], 0, [2], 1)]).groups
    assert group.pad_index is None
    assert group.keep_index is None


def test_rows_of_very_different_context_are_cut_where_that_pays(monkeypatch):
    rows = [RowInput([1], n, range(9 * i, 9 * i + 9), 1) for i, n in enumerate((3, 30, 4))]
    assert len(plan(rows).groups) == 1
    monkeypatch.setattr("minedraft.model.kernels.torch_attention.SPLIT_SAVING", 1)
    assert [group.tokens.tolist() for group in plan(rows).groups] == [[1], [0, 2]]


def test_a_mask_hides_the_future_the_past_of_the_window_and_other_rows_padding():
    (group,) = plan([RowInput([1, 1], 6, [5, 6], 1), RowInput([1], 2, [7], 1)]).groups
    span = group.span(4, need_mask=False, like=torch.empty(0), heads=(2, 1))
    seen = span.mask[:, 0] == 0
    assert [q.nonzero().flatten().tolist() for q in seen[0]] == [[3, 4, 5, 6], [4, 5, 6, 7]]
    assert [q.nonzero().flatten().tolist() for q in seen[1]] == [[0, 1, 2], [0, 1, 2]]
    assert span.pages.tolist() == [5, 6, 7, 7]
    assert span.packed_mask.shape == (2, 1, 4, 8)


def test_blocks_wholly_before_the_window_are_not_gathered():
    (group,) = plan([RowInput([1], 30, range(8), 1)]).groups
    span = group.span(4, need_mask=False, like=torch.empty(0), heads=(1, 1))
    assert span.pages.tolist() == [6, 7]


def test_every_head_of_a_token_goes_to_the_row_of_its_block():
    assert plan([RowInput([1, 1], 3, [9, 2], 1)]).pool_rows(2).tolist() == [75, 79, 16, 20]


@pytest.mark.parametrize("queries", [3, 15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_and_sdpa_agree(dtype, queries, monkeypatch):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8).to(dtype) for n in (queries, 20, 20))
    mask = torch.zeros(2, 3, queries, 20, dtype=dtype)
    mask[..., 13:] = float("-inf")
    options = AttentionOptions(0.35)
    got = []
    for pays in (True, False):
        monkeypatch.setattr(
            "minedraft.model.kernels.torch_attention._products_pay", lambda *a, p=pays: p
        )
        got.append(_attend(q, k, v, mask, options))
    torch.testing.assert_close(*got, rtol=2e-2, atol=1e-5 if dtype == torch.float32 else 2e-2)


def test_products_serve_bf16_and_few_queries_only():
    def pays(dtype, queries):
        q, k = torch.empty(2, 3, queries, 8, dtype=dtype), torch.empty(2, 3, 20, 8, dtype=dtype)
        return _products_pay(q, k, torch.empty(2, 3, queries, 20, dtype=dtype))

    assert pays(torch.bfloat16, 15)
    assert pays(torch.float32, 3)
    assert not pays(torch.float32, 15)
