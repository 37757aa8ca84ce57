from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from minedraft.errors import ModelError
from minedraft.model.parallel.plan import check_plan, share_heads
from tests.tiny_families import FAMILIES

PATH = Path("target")
LLAMA = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.k_proj": "colwise",
    "layers.*.self_attn.v_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
}
FUSED = {"layers.*.attention.query_key_value": "colwise", "layers.*.attention.dense": "rowwise"}
GATHERED = {"layers.*.self_attn.qkv_proj": "colwise_gather_output"}


def config(query_heads, kv_heads, plan=LLAMA):
    return SimpleNamespace(
        base_model_tp_plan=plan, num_attention_heads=query_heads, num_key_value_heads=kv_heads
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_every_served_family_can_be_shared_by_two(name):
    assert not share_heads(PATH, FAMILIES[name](), 2).is_replicated


@pytest.mark.parametrize(
    ("query_heads", "kv_heads", "size"), [(9, 3, 2), (6, 2, 4), (12, 6, 4), (12, 4, 6)]
)
def test_heads_that_do_not_divide_are_refused_with_the_numbers(query_heads, kv_heads, size):
    with pytest.raises(ModelError) as caught:
        share_heads(PATH, config(query_heads, kv_heads), size)
    for said in (f"tp_size={size}", f"Hq={query_heads}", f"Hkv={kv_heads}", "target"):
        assert said in str(caught.value)


def test_more_ranks_than_kv_heads_repeat_them_beside_their_query_heads():
    heads = share_heads(PATH, config(8, 2), 4)
    assert heads.is_replicated
    assert [heads.kv_head(rank) for rank in range(4)] == [0, 0, 1, 1]


def test_fused_heads_cannot_be_repeated():
    with pytest.raises(ModelError, match="KV heads"):
        share_heads(PATH, config(8, 2, FUSED), 4)


def test_attention_that_runs_whole_needs_no_division():
    assert not share_heads(PATH, config(9, 3, GATHERED), 2).is_replicated


def test_heads_that_differ_between_layers_are_refused():
    with pytest.raises(ModelError, match="differ between layers"):
        share_heads(PATH, config([8, 4], 2), 2)


def test_a_model_without_a_plan_is_refused():
    for plan in (None, {}):
        with pytest.raises(ModelError, match="no tensor parallel plan"):
            share_heads(PATH, config(8, 2, plan), 2)


def test_an_unknown_style_is_refused_by_name():
    plan = {**LLAMA, "layers.*.self_attn.kv_a_proj": "mla_kv_a_proj"}
    with pytest.raises(ModelError, match=r"mla_kv_a_proj.*kv_a_proj"):
        check_plan(PATH, plan)
