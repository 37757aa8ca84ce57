from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.attention import AttentionOptions, paged_attention

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
