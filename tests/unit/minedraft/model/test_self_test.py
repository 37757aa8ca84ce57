from __future__ import annotations

from pathlib import Path

import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.loader import load_runner
from minedraft.model.self_test import Reference, blocks_needed, compare, relative_error
from tests.tiny_families import own_logits
from tests.tiny_models import make_tiny_llama

HERE = Path("some/model")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_tiny_llama(tmp_path_factory.mktemp("llama"))


def reference_of(llama, scale=1.0):
    ids = list(range(30, 54))
    return Reference(ids, own_logits(llama, ids)[-5:] * scale)


def test_the_right_logits_pass_and_slightly_wrong_ones_do_not(llama):
    runner = load_runner(llama, num_blocks=4, self_test=False)
    assert blocks_needed(reference_of(llama), 16) == 4
    assert compare(HERE, runner, reference_of(llama)) < 1e-5
    with pytest.raises(ModelError, match=r"some/model.*relative error 0\.0099"):
        compare(HERE, runner, reference_of(llama, 1.01))


def test_logits_that_are_no_numbers_do_not_pass(llama):
    runner = load_runner(llama, num_blocks=4, self_test=False)
    with pytest.raises(ModelError, match="relative error nan"):
        compare(HERE, runner, reference_of(llama, float("nan")))


def test_the_error_does_not_see_a_constant_added_to_a_row():
    logits = torch.randn(3, 9)
    assert relative_error(logits + 5, logits) < 1e-5
