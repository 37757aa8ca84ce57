"""A row's logits have the same bits in any batch and chunks, with drafts or without, in bf16."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from minedraft.model.batch import RowInput
from minedraft.model.kernels.c import compile as build
from minedraft.model.loader import load_runner
from tests.tiny_families import FAMILIES, VOCAB_SIZE, save_family

pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C compiler here")

ROWS, LENGTH, K, BLOCK = 8, 110, 4, 16
DTYPES = ("float32", "bfloat16")


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = save_family(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


def texts():
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, VOCAB_SIZE, (ROWS, LENGTH + K + 1), generator=generator).tolist()


class Rows:
    """Rows of one runner, with blocks of their own."""

    def __init__(self, path, dtype):
        each = -(-(LENGTH + K + 1) // BLOCK)
        self.runner = load_runner(
            path, dtype=dtype, kernels="c", num_blocks=ROWS * each, block_size=BLOCK,
            self_test=False,
        )  # fmt: skip
        self.tables = [range(i, ROWS * each, ROWS) for i in range(ROWS)]
        self.texts = texts()

    def feed(self, pieces):
        """Logits of every token of [(row, first position, count)], by (row, position)."""
        rows = [
            RowInput(self.texts[row][at : at + n], at, self.tables[row], n) for row, at, n in pieces
        ]
        logits = self.runner.forward(rows)
        assert not self.runner.broken
        places = [(row, at + i) for row, at, n in pieces for i in range(n)]
        return dict(zip(places, logits, strict=True))


def assert_same(got, wanted):
    for place, logits in got.items():
        assert torch.equal(logits, wanted[place]), place


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_prefill_verify_and_decode_give_a_row_the_same_bits(families, name, dtype):
    rows = Rows(families(name), dtype)
    whole = rows.feed([(row, 0, LENGTH + K + 1) for row in range(ROWS)])
    for at in range(0, LENGTH, 48):  # one row alone, in chunks
        assert_same(rows.feed([(3, at, min(48, LENGTH - at))]), whole)
    assert_same(rows.feed([(row, LENGTH, K + 1) for row in range(ROWS)]), whole)
    for at in range(LENGTH, LENGTH + K + 1):
        assert_same(rows.feed([(row, at, 1) for row in range(ROWS)]), whole)
        assert_same(rows.feed([(5, at, 1)]), whole)
    assert_same(rows.feed([(2, 0, 30), (6, LENGTH, 2), (1, 7, 1), (0, LENGTH, K + 1)]), whole)
    rows.tables[4] = rows.tables[7][::-1]  # preempted, resumed in blocks that another left
    assert_same(rows.feed([(1, 60, 50), (4, 0, LENGTH + 1)]), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_threads_change_no_bit(families, name, dtype):
    pieces = [(row, 0, LENGTH) for row in range(ROWS)]
    wanted = Rows(families(name), dtype).feed(pieces)
    try:
        for threads in (2, 3):
            torch.set_num_threads(threads)
            assert_same(Rows(families(name), dtype).feed(pieces), wanted)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "gemma2_softcap"])
def test_bf16_weights_give_the_bits_of_their_widened_copy(families, name, tmp_path):
    narrow, wide = tmp_path / "narrow", tmp_path / "wide"
    model = AutoModelForCausalLM.from_pretrained(families(name), dtype=torch.bfloat16)
    model.save_pretrained(narrow)
    model.float().save_pretrained(wide)
    pieces = [(row, 0, 20) for row in range(3)]
    assert_same(Rows(narrow, "float32").feed(pieces), Rows(wide, "float32").feed(pieces))
