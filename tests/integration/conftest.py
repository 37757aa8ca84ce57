"""Tiny models that integration tests share, and what plain decoding makes of them."""

from __future__ import annotations

import asyncio
import logging

import pytest
import structlog
import torch
from transformers import AutoModelForCausalLM

from minedraft.services.coordinator.text.tokenizer import Tokenizer
from tests.tiny_models import make_tiny_llama
from tests.warm_python import SERVICES, WarmPython


@pytest.fixture(scope="session")
def target_dir(tmp_path_factory):
    return make_tiny_llama(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def draft_dir(tmp_path_factory):
    """A drafter with the target's vocabulary and other weights."""
    return make_tiny_llama(tmp_path_factory.mktemp("draft"), seed=1, layers=1)


@pytest.fixture(scope="session")
def tokenizer(target_dir):
    return Tokenizer.from_directory(target_dir)


@pytest.fixture(scope="session")
def warm_python():
    with WarmPython(SERVICES) as warm:
        yield warm


@pytest.fixture
def warm_processes(warm_python):
    """Processes that this test starts are warm: their start is not what it is about."""
    with warm_python.instead_of_cold():
        yield


@pytest.fixture(scope="session")
def plain_greedy(target_dir):
    """Greedy decoding by transformers: (prompt, n) -> n tokens, EOS ignored."""
    model = AutoModelForCausalLM.from_pretrained(target_dir, dtype=torch.float32).eval()
    known = {}

    def decode(prompt, num_tokens):
        key = (tuple(prompt), num_tokens)
        if key not in known:
            tokens = list(prompt)
            with torch.inference_mode():
                for _ in range(num_tokens):
                    logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
                    tokens.append(int(logits.argmax()))
            known[key] = tuple(tokens[len(prompt) :])
        return known[key]

    return decode


@pytest.fixture(autouse=True)
def quiet_services(warm_texts):
    """Services log much at info; warnings are what a failing test needs."""
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.configure(**config)


async def gather(*awaitables):
    """Run all to their end; the first error ends the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in awaitables]
    return [task.result() for task in tasks]
