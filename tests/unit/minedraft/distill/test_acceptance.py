"""The independent acceptance figure, against a step-by-step speculation and by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from minedraft.distill.acceptance import AcceptanceReport, measure_acceptance, walk
from minedraft.hub.progress import no_progress
from tests.tiny_models import make_tiny_llama

T, F = True, False


@pytest.mark.parametrize(
    ("matches", "steps", "accepted"),
    [
        ([], 0, 0),
        ([F], 1, 0),
        ([T], 1, 1),
        ([F, F, F], 3, 0),
        ([T, T, F], 1, 2),  # two accepted, the target's own in place of the third
        ([T, T, T], 1, 2),  # two accepted, the third is the bonus token
        ([T, T, T, T, T, F], 2, 4),
        ([F, T, T, T], 2, 2),
    ],
)
def test_steps_by_hand_with_two_draft_tokens(matches, steps, accepted):
    tokens, matching, found_steps, proposed, found_accepted = walk(matches, 2)
    assert (found_steps, found_accepted) == (steps, accepted)
    assert tokens == len(matches)
    assert matching == sum(matches)
    assert proposed == 2 * steps


def test_rates_follow_from_the_counts():
    report = AcceptanceReport(10, 4, 5, 20, 5)
    assert report.match_rate == 0.4
    assert report.acceptance_rate == 0.25
    assert report.tokens_per_step == 2.0
    assert AcceptanceReport(0, 0, 0, 0, 0).tokens_per_step == 0.0


@pytest.fixture
def load(tmp_path):
    def make(seed, **settings):
        directory = make_tiny_llama(tmp_path / str(seed), seed=seed, **settings)
        return AutoModelForCausalLM.from_pretrained(directory).eval()

    return make


PROMPTS = [[5, 6, 7], [100, 20, 30, 40], [9]]


@pytest.mark.slow  # the first generate imports half of transformers
@pytest.mark.timeout(60)
def test_a_target_accepts_all_of_itself(load):
    target = load(0)
    report = measure_acceptance(
        target, target, PROMPTS, no_progress, num_draft_tokens=3, max_new_tokens=17
    )
    assert report.match_rate == 1.0
    assert report.num_steps == 3 * 4  # 16 tokens after the first, four a step


def speculate(target, draft, prompt, k, length):
    """Draft k, verify, keep: the definition, one token at a time. Tokens and steps."""

    def choice(model, ids):
        return int(model(torch.tensor([ids])).logits[0, -1].argmax())

    ids = [*prompt, choice(target, prompt)]
    steps = accepted = 0
    while len(ids) - len(prompt) < length:
        steps += 1
        drafted = list(ids)
        for _ in range(k):
            drafted.append(choice(draft, drafted))
        for token in drafted[len(ids) :]:
            if len(ids) - len(prompt) == length or choice(target, ids) != token:
                break
            ids.append(token)
            accepted += 1
        if len(ids) - len(prompt) < length:
            ids.append(choice(target, ids))
    return steps, accepted


@torch.inference_mode()
def test_the_counts_are_those_of_real_speculation(load):
    target, draft = load(0), load(0)
    generator = torch.Generator().manual_seed(1)
    for parameter in draft.parameters():  # near enough to be right now and then
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)
    target.generation_config.eos_token_id = None
    report = measure_acceptance(
        target, draft, PROMPTS, no_progress, num_draft_tokens=2, max_new_tokens=12
    )
    counts = [speculate(target, draft, prompt, 2, 12) for prompt in PROMPTS]
    assert (report.num_steps, report.num_accepted) == tuple(map(sum, zip(*counts, strict=True)))
    assert 0 < report.match_rate < 1
