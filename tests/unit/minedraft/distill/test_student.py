"""The student: the target's layers at first, and only its own weights on disk."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from minedraft.distill.student import choose_layers, make_student, save_layers
from minedraft.errors import ConfigError, ModelError
from tests.tiny_models import make_tiny_llama


@pytest.fixture
def target(tmp_path):
    directory = make_tiny_llama(tmp_path / "target", layers=5)
    return AutoModelForCausalLM.from_pretrained(directory).eval()


def test_by_default_the_first_three_layers_and_the_last():
    assert choose_layers((), 30) == (0, 1, 2, 29)
    assert choose_layers((), 2) == (0, 1)
    assert choose_layers((1, 4), 5) == (1, 4)


def test_a_layer_the_target_does_not_have_is_named():
    with pytest.raises(ConfigError, match=r"\(0, 5\): the target has layers 0\.\.4"):
        choose_layers((0, 5), 5)


def test_layers_are_renumbered_copies_of_the_targets(target):
    student = make_student(target, (1, 4)).state_dict()
    theirs = target.state_dict()
    for ours, number in ((0, 1), (1, 4)):
        name = "self_attn.q_proj.weight"
        assert torch.equal(
            student[f"model.layers.{ours}.{name}"], theirs[f"model.layers.{number}.{name}"]
        )
    assert not [name for name in student if name.startswith("model.layers.2.")]


def test_all_layers_make_the_target_itself(target):
    ids = torch.tensor([[4, 8, 15, 16, 23, 42]])
    student = make_student(target, range(5)).eval()
    assert torch.equal(student(ids).logits, target(ids).logits)


def test_embedding_and_head_are_frozen_the_rest_learns(target):
    frozen = {n for n, p in make_student(target, (0,)).named_parameters() if not p.requires_grad}
    assert frozen == {"model.embed_tokens.weight", "lm_head.weight"}


def test_only_layers_and_norm_are_stored_in_the_type_asked_for(target, tmp_path):
    save_layers(make_student(target, (0, 1)), tmp_path, torch.bfloat16)
    weights = load_file(tmp_path / "model.safetensors")
    assert {name.split(".")[1] for name in weights} == {"layers", "norm"}
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}
    assert (tmp_path / "config.json").exists()


def test_a_head_with_a_soft_cap_is_refused(target):
    target.config.final_logit_softcapping = 30.0
    with pytest.raises(ModelError, match="final_logit_softcapping"):
        make_student(target, (0,))
