"""The paged, packed path against each family's own forward, fp32."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minedraft.errors import StateError
from minedraft.model.batch import RowInput
from minedraft.model.loader import load_runner
from tests.tiny_families import FAMILIES, VOCAB_SIZE, own_logits, save_family

LENGTH = 90
BLOCK = 4
# Random logits here have a spread of tens; fp32 paths differ by 1e-4 at most.
TOLERANCE = {"rtol": 1e-3, "atol": 2e-3}


def tokens(seed, length=LENGTH):
    rng = random.Random(seed)
    return [rng.randrange(VOCAB_SIZE) for _ in range(length)]


def tables(rows, blocks_each, num_blocks, seed=0):
    order = list(range(num_blocks))
    random.Random(seed).shuffle(order)
    return [order[i * blocks_each : (i + 1) * blocks_each] for i in range(rows)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            path = save_family(name, tmp_path_factory.mktemp(name))
            made[name] = (path, load_runner(path, num_blocks=96, block_size=BLOCK))
        return made[name]

    return get


@pytest.mark.parametrize("name", FAMILIES)
def test_chunks_verify_and_rollback_equal_the_models_own_forward(models, name):
    path, runner = models(name)
    a, b = tokens(1), tokens(2)
    want_a, want_b = own_logits(path, a), own_logits(path, b)
    ta, tb = tables(2, 24, 96)
    runner.forward([RowInput(a[:50], 0, ta, 0)])
    # A short chunk of one row beside a long prefill of the other, in one forward.
    got = runner.forward([RowInput(a[50:70], 50, ta, 3), RowInput(b[:60], 0, tb, 60)])
    torch.testing.assert_close(got[:3], want_a[67:70], **TOLERANCE)
    torch.testing.assert_close(got[3:], want_b[:60], **TOLERANCE)
    # Wrong drafts, of different lengths, then rolled back by a smaller start.
    wrong = [(t + 1) % VOCAB_SIZE for t in a[70:78]]
    runner.forward([RowInput(wrong, 70, ta, 8), RowInput(wrong[:3], 60, tb, 1)])
    got = runner.forward([RowInput(a[70:75], 70, ta, 5), RowInput(b[60:62], 60, tb, 2)])
    torch.testing.assert_close(got[:5], want_a[70:75], **TOLERANCE)
    torch.testing.assert_close(got[5:], want_b[60:62], **TOLERANCE)
    got = runner.forward([RowInput(b[62:82], 62, tb, 20), RowInput(a[75:76], 75, ta, 1)])
    torch.testing.assert_close(got[:20], want_b[62:82], **TOLERANCE)
    torch.testing.assert_close(got[20:], want_a[75:76], **TOLERANCE)


@pytest.mark.parametrize("name", ["mistral_window", "gemma3_window", "gemma2_softcap"])
def test_the_sliding_window_matters_in_these_models(models, name):
    path, _ = models(name)
    a = tokens(1)
    difference = (own_logits(path, a) - own_logits(path, a, sliding_window=4096))[-1].abs().max()
    assert difference > 0.5


def test_the_soft_cap_matters_in_the_gemma2_model(models):
    path, _ = models("gemma2_softcap")
    a = tokens(1)
    uncapped = own_logits(path, a, attn_logit_softcapping=None)
    assert (own_logits(path, a) - uncapped)[-1].abs().max() > 0.5


def test_logits_come_in_the_order_of_the_rows_whatever_their_lengths(models):
    path, runner = models("llama")
    lengths = [60, 1, 9, 2, 49, 5]
    texts = [tokens(10 + i, n) for i, n in enumerate(lengths)]
    blocks = tables(6, 16, 96)
    got = runner.forward([RowInput(t, 0, b, 1) for t, b in zip(texts, blocks, strict=True)])
    want = torch.stack([own_logits(path, t)[-1] for t in texts])
    torch.testing.assert_close(got, want, **TOLERANCE)


def test_rows_of_very_different_context_are_split_and_still_right(models, monkeypatch):
    path, runner = models("mistral_window")
    monkeypatch.setattr("minedraft.model.kernels.torch_attention.SPLIT_SAVING", 1)
    long, short = tokens(1), tokens(2, 6)
    ta, tb = tables(2, 24, 96)
    runner.forward([RowInput(long[:86], 0, ta, 0), RowInput(short[:4], 0, tb, 0)])
    got = runner.forward([RowInput(short[4:], 4, tb, 2), RowInput(long[86:88], 86, ta, 2)])
    torch.testing.assert_close(got[:2], own_logits(path, short)[4:], **TOLERANCE)
    torch.testing.assert_close(got[2:], own_logits(path, long)[86:88], **TOLERANCE)


def test_no_logits_wanted_gives_an_empty_tensor(models):
    _, runner = models("llama")
    assert runner.forward([RowInput([3, 4], 0, [0], 0)]).shape == (0, VOCAB_SIZE)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (RowInput([], 0, [0], 0), "token_ids is empty"),
        (RowInput([1], -1, [0], 0), "positions"),
        (RowInput([1], 256, [0] * 65, 0), "positions 256..256"),
        (RowInput([1, 2], 0, [0], 3), "num_logits=3"),
        (RowInput([1] * 5, 0, [0], 1), "1 blocks cannot hold 5"),
        (RowInput([1], 0, [96], 1), "block_ids"),
        (RowInput([VOCAB_SIZE], 0, [0], 1), f"{VOCAB_SIZE}"),
        (RowInput([-1], 0, [0], 1), "-1"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(models, row, said):
    _, runner = models("llama")
    with pytest.raises(StateError, match=said):
        runner.forward([row])


def test_two_rows_that_write_one_block_are_refused(models):
    _, runner = models("llama")
    with pytest.raises(StateError, match="also written by row 0"):
        runner.forward([RowInput([1], 0, [7], 1), RowInput([2], 0, [7], 1)])


@pytest.mark.slow
@pytest.mark.timeout(60)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
@pytest.mark.parametrize("name", ["llama", "gemma3_window"])
def test_any_sequence_of_feeds_and_rollbacks_equals_the_plain_forward(models, name, data):
    path, runner = models(name)
    state = [[], [], []]
    blocks = tables(3, 20, 96, seed=data.draw(st.integers(0, 9)))
    for _ in range(data.draw(st.integers(1, 6))):
        chosen = data.draw(st.sets(st.integers(0, 2), min_size=1))
        rows, owners = [], []
        for i in data.draw(st.permutations(sorted(chosen))):
            start = data.draw(st.integers(0, min(len(state[i]), 60)))
            fed = data.draw(
                st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=80 - start)
            )
            state[i] = state[i][:start] + fed
            rows.append(RowInput(fed, start, blocks[i], 1))
            owners.append(i)
        got = runner.forward(rows)
    want = torch.stack([own_logits(path, state[i])[-1] for i in owners])
    torch.testing.assert_close(got, want, **TOLERANCE)
