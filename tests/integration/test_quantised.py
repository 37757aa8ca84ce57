"""Quantised targets and drafters through the services: the output is the dequantised model's."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.gguf_models import to_gguf
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather
from tests.quantised_models import dequantise, quantise
from tests.tiny_models import make_tiny_llama

PROMPTS = [list(range(5, 6 + 7 * i)) for i in range(6)]
NUM_TOKENS = 16


def greedy(directory, prompt):
    """Plain decoding by transformers."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(NUM_TOKENS):
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            tokens.append(int(logits.argmax()))
    return tuple(tokens[len(prompt) :])


def quantised(directory, form, **sizes):
    """A model in this format, and the same one dequantised."""
    path = make_tiny_llama(directory / form, **sizes)
    meant = to_gguf(path, form) if form == "Q4_K" else quantise(path, form)
    return path, meant


@pytest.mark.parametrize(
    ("form", "words", "sizes"),
    [
        ("gptq", "int4 (gptq, groups of 32)", {}),
        ("ct_int8", "int8 (compressed-tensors)", {}),
        ("fp8", "fp8 (fp8, blocks of 48 x 40)", {}),
        ("Q4_K", "gguf (Q4_K)", {"hidden": 256, "layers": 1}),
    ],
)
async def test_greedy_output_is_that_of_the_dequantised_target(tmp_path, form, words, sizes):
    target, meant = quantised(tmp_path, form, **sizes)
    if form == "Q4_K":  # embedding, norms and head are as they were
        plain = make_tiny_llama(tmp_path / "plain", **sizes)
        dense = dequantise(plain, meant, tmp_path / "dense")
    else:
        dense = dequantise(target, meant, tmp_path / "dense")
    drafter, _ = quantised(tmp_path / "drafter", "awq", layers=1)
    expected = [greedy(dense, prompt) for prompt in PROMPTS]
    async with cluster(target, drafter, kind="model", mode=(2, 3, 3)) as c:
        results = await gather(
            *(
                c.client.generate(prompt, max_tokens=NUM_TOKENS, ignore_eos=True, temperature=0)
                for prompt in PROMPTS
            )
        )
        status = await until_status(c.client, lambda s: s.is_idle)
    assert [result.token_ids for result in results] == expected
    models = {worker.role: worker.model.quantisation for worker in status.workers}
    assert models == {"verifier": words, "drafter": "int4 (awq, groups of 32)"}
