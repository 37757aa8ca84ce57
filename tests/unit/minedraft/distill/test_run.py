"""The whole job on a tiny target: the loss falls, the drafter loads, and a second run goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from minedraft.distill.answers import collect_answers, encode_prompts
from minedraft.distill.options import DistillOptions
from minedraft.distill.run import run_distill
from minedraft.errors import ConfigError, ModelError
from minedraft.hub.progress import no_progress
from tests.tiny_models import make_tiny_llama

PROMPTS = [f"the {w} runs after the fox" for w in ("dog", "sea", "shore", "model", "sand", "wave")]


@pytest.fixture
def options(tmp_path):
    return DistillOptions(
        target=make_tiny_llama(tmp_path / "target", layers=3),
        output=tmp_path / "out",
        layers=(0, 2),
        max_new_tokens=12,
        generation_batch=2,
        num_logprobs=8,
        epochs=30,
        tokens_per_batch=200,
        peak_learning_rate=1e-2,
        warmup_steps=3,
    )


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_loss_falls_and_the_drafter_loads_and_agrees_more(options):
    made = run_distill(options, PROMPTS)
    assert made.report.last_loss < 0.8 * made.report.first_loss
    assert made.report.last_match > 0.5
    draft = AutoModelForCausalLM.from_pretrained(made.complete_dir)
    assert draft.config.num_hidden_layers == 2
    theirs = load_file(options.target / "model.safetensors")
    assert torch.equal(draft.lm_head.weight, theirs["lm_head.weight"])
    assert (made.complete_dir / "tokenizer.json").exists()
    names = load_file(made.layers_dir / "model.safetensors")
    assert not [name for name in names if "embed" in name or "lm_head" in name]
    record = json.loads((made.layers_dir / "distill.json").read_text())
    assert record["options"]["layers"] == [0, 2]
    assert record["training"]["num_steps"] == made.report.num_steps


def load(options):
    model = AutoModelForCausalLM.from_pretrained(options.target).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    return model, encode_prompts(tokenizer, PROMPTS, options)


def test_answers_are_the_targets_own_and_so_are_the_log_probabilities(options):
    target, prompts = load(options)
    target.generation_config.eos_token_id = None
    answers = collect_answers(target, prompts, replace(options, greedy_share=1.0), no_progress)
    assert len(answers) == len(PROMPTS)
    for answer, prompt in zip(answers, prompts, strict=True):
        assert answer.token_ids[: answer.num_prompt_tokens].tolist() == prompt
        with torch.no_grad():
            logprobs = target(answer.token_ids[None]).logits[0].log_softmax(-1)
        for i, token in enumerate(answer.token_ids[len(prompt) :].tolist()):
            position = len(prompt) - 1 + i
            assert token == logprobs[position].argmax() == answer.top_ids[i, 0]
            expected = logprobs[position].topk(8).values
            assert torch.allclose(answer.top_logprobs[i], expected, atol=1e-2)  # stored as fp16


def test_sampled_and_greedy_answers_take_their_shares(options, monkeypatch):
    target, prompts = load(options)
    kinds = []
    generate = target.generate

    def spy(**settings):
        kinds.append(settings["do_sample"])
        return generate(**settings)

    monkeypatch.setattr(target, "generate", spy)
    settings = replace(options, generation_batch=1, greedy_share=0.5)
    collect_answers(target, prompts, settings, no_progress)
    assert kinds.count(True) == kinds.count(False) == 3


def test_a_second_run_reads_the_answers_of_the_first(options, monkeypatch):
    target, prompts = load(options)
    first = collect_answers(target, prompts, options, no_progress)
    monkeypatch.setattr(target, "generate", lambda **_: pytest.fail("must not generate"))
    second = collect_answers(target, prompts, options, no_progress)
    assert [a.token_ids.tolist() for a in first] == [a.token_ids.tolist() for a in second]


def test_answers_of_other_settings_are_refused_by_name(options):
    target, prompts = load(options)
    collect_answers(target, prompts, options, no_progress)
    with pytest.raises(ConfigError, match="temperature"):
        collect_answers(target, prompts, replace(options, temperature=0.9), no_progress)
    with pytest.raises(ConfigError, match="prompts"):
        collect_answers(target, prompts[1:], options, no_progress)


def test_prompts_that_are_too_long_are_left_out_and_none_left_is_an_error(options):
    _, prompts = load(options)
    assert [len(p) for p in prompts] == sorted(len(p) for p in prompts)
    with pytest.raises(ConfigError, match=r"none of 6 prompts has 1\.\.2 tokens"):
        load(replace(options, max_prompt_tokens=2))


def test_a_target_that_is_not_there_is_named(options, tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        run_distill(replace(options, target=tmp_path / "nowhere"), PROMPTS)


def test_a_layer_out_of_range_is_refused_before_any_answer(options):
    with pytest.raises(ConfigError, match=r"layers 0\.\.2"):
        run_distill(replace(options, layers=(0, 9)), PROMPTS)
    assert not options.output.exists()
