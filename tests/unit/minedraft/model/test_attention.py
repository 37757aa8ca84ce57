from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.attention import AttentionOptions, _attend, _products_pay, paged_attention

Q = torch.zeros(1, 2, 3, 4)


class Spy:
    def attend(self, layer, query, key, value, options):
        self.seen = (layer, options)
        return query.transpose(0, 1)


def call(mask=None, *, causal=True, **kwargs):
    module = SimpleNamespace(layer_idx=3, is_causal=causal)
    return paged_attention(module, Q, Q, Q, mask, **{"paged": Spy(), **kwargs})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"s_aux": torch.ones(2)}, "s_aux"),
        ({"position_bias": torch.ones(2)}, "position_bias"),
        ({"something_new": 1}, "something_new"),
        ({"mask": torch.ones(1, 1, 3, 3)}, "attention_mask"),
        ({"causal": False}, "is_causal=False"),
        ({"is_causal": False}, "is_causal=False"),
        ({"dropout": 0.1}, "dropout=0.1"),
        ({"paged": None}, "keyword arguments"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options, said):
    with pytest.raises(ModelError, match=said):
        call(**options)


def test_options_reach_the_step_and_harmless_ones_pass():
    spy = Spy()
    call(paged=spy, scaling=0.3, sliding_window=7, softcap=2, position_ids=Q, s_aux=None)
    assert spy.seen == (3, AttentionOptions(0.3, 7, 2.0))
    call(paged=spy)
    assert spy.seen[1].scaling == pytest.approx(0.5)


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
        monkeypatch.setattr("minedraft.model.attention._products_pay", lambda *a, p=pays: p)
        got.append(_attend(q, k, v, mask, options))
    torch.testing.assert_close(*got, rtol=2e-2, atol=1e-5 if dtype == torch.float32 else 2e-2)


def test_products_serve_bf16_and_few_queries_only():
    def pays(dtype, queries):
        q, k = torch.empty(2, 3, queries, 8, dtype=dtype), torch.empty(2, 3, 20, 8, dtype=dtype)
        return _products_pay(q, k, torch.empty(2, 3, queries, 20, dtype=dtype))

    assert pays(torch.bfloat16, 15)
    assert pays(torch.float32, 3)
    assert not pays(torch.float32, 15)
