"""Numbers that cannot be are refused by the name of their tensor, when it is read."""

from __future__ import annotations

import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.directory import open_directory
from minedraft.model.loader import load_runner
from minedraft.model.quantised.sources import SafetensorsSource
from tests.gguf_models import to_gguf
from tests.quantised_models import edit_config, edit_tensors, quantise
from tests.tiny_models import make_tiny_llama


@pytest.fixture
def llama(tmp_path):
    return make_tiny_llama(tmp_path / "m", hidden=256, layers=1)


def spoiled(tensor):
    flat = tensor.clone().flatten()
    flat[-1] = torch.nan
    return flat.view(tensor.shape)


@pytest.mark.parametrize(
    ("form", "piece"),
    [
        ("gptq", "scales"),
        ("awq", "scales"),
        ("ct_int4", "weight_scale"),
        ("ct_int8", "weight_scale"),
        ("fp8", "weight_scale_inv"),
    ],
)
def test_a_scale_that_is_no_number_is_refused_by_the_name_of_its_layer(llama, form, piece):
    quantise(llama, form)
    edit_tensors(llama, **{piece: spoiled})
    with pytest.raises(ModelError, match=r"model\.layers\.0\..*_proj: .*not a finite number"):
        load_runner(llama, num_blocks=1)


def test_a_group_index_out_of_range_is_refused(llama):
    quantise(llama, "gptq")
    edit_tensors(llama, g_idx=lambda index: index + 1)
    with pytest.raises(ModelError, match="g_idx has 1 to 8, want groups 0 to 7"):
        load_runner(llama, num_blocks=1)


def test_a_scale_of_a_gguf_block_that_is_no_number_is_refused_by_name(llama):
    to_gguf(llama, "Q8_0")
    header = open_directory(llama).gguf
    begin = header.tensors["blk.0.ffn_up.weight"].begin
    content = bytearray((llama / "model.gguf").read_bytes())
    content[begin : begin + 2] = b"\x00\x7c"  # infinity
    (llama / "model.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.layers\.0\.mlp\.up_proj\.weight: .*not a finite"):
        load_runner(llama, num_blocks=1)


def test_a_gguf_tensor_that_the_model_has_not_is_refused(llama):
    to_gguf(llama, "Q8_0")
    edit_config(llama, tie_word_embeddings=False, num_hidden_layers=1, attention_bias=False)
    content = (llama / "model.gguf").read_bytes()
    (llama / "model.gguf").write_bytes(content.replace(b"blk.0.ffn_up", b"blk.7.ffn_up"))
    with pytest.raises(ModelError, match=r"tensors \['blk\.7\.ffn_up\.weight'\] have no place"):
        load_runner(llama, num_blocks=1)


def test_a_gguf_tensor_that_is_missing_is_refused(llama):
    to_gguf(llama, "Q8_0")
    edit_config(llama, num_hidden_layers=2)
    with pytest.raises(ModelError, match="missing_keys"):
        load_runner(llama, num_blocks=1)


def test_a_tensor_is_read_when_it_is_asked_for(llama):
    quantise(llama, "gptq")
    edit_tensors(llama, scales=spoiled)
    directory = open_directory(llama)
    source = SafetensorsSource(directory, directory.quantisation)
    tensors = source.tensors(())
    assert tensors["model.norm.weight"]().shape == (256,)
    with pytest.raises(ModelError, match="not a finite number"):
        tensors["model.layers.0.mlp.up_proj.weight"]()
