from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.architecture import GeometryProbe, max_model_len, refuse_config
from minedraft.model.attention import AttentionOptions

HERE = Path("some/model")


@pytest.mark.parametrize(
    "fields",
    [
        {"is_encoder_decoder": True},
        {"num_kv_shared_layers": 2},
        {"use_bidirectional_attention": True},
        {"attention_chunk_size": 64},
        {"alibi": True},
        {"layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": ["chunked_attention"]},
    ],
)
def test_what_the_config_tells_is_refused_with_directory_and_field(fields):
    with pytest.raises(ModelError, match=r"some/model.*(=|layer type)"):
        refuse_config(HERE, SimpleNamespace(**fields))


def test_full_and_sliding_layers_are_served():
    refuse_config(HERE, SimpleNamespace(layer_types=["full_attention", "sliding_attention"]))


@pytest.mark.parametrize(("kind", "length"), [("dynamic", 64), ("longrope", 64), ("yarn", 256)])
def test_only_ropes_that_look_at_the_batch_are_capped(kind, length):
    rope = {"rope_type": kind, "original_max_position_embeddings": 64}
    config = SimpleNamespace(max_position_embeddings=256, rope_parameters=rope)
    assert max_model_len(HERE, config) == length


def test_a_layer_that_attends_twice_is_refused():
    probe, x = GeometryProbe(), torch.zeros(2, 3, 4)
    probe.attend(0, x, x, x, AttentionOptions(1.0))
    with pytest.raises(ModelError, match="layer 0 attends twice"):
        probe.attend(0, x, x, x, AttentionOptions(1.0))
