"""A row gets what its own tokens give, whatever is NaN elsewhere: the runner, on real models."""

from __future__ import annotations

import math

import pytest
import torch

from minedraft.model.batch import RowInput
from minedraft.model.kernels.c import compile as build
from minedraft.model.loader import load_runner
from minedraft.model.parallel.leader import Leader, follow
from tests.rank_threads import rank_threads as rank_threads  # noqa: PLC0414 a fixture
from tests.tiny_families import FAMILIES, VOCAB_SIZE, WINDOW, save_family
from tests.tiny_models import make_tiny_llama

BAD = 33
"""The token that the model has no numbers for."""
BLOCK = 4
DTYPES = ("float32", "bfloat16")
HAS_C = bool(build.compiler())
# The torch maker multiplies what it hides by 0, for all families; C never looks at it.
MAKERS = ("torch", "c") if HAS_C else ("torch",)


def made(names, c_names=("llama", "gemma2_softcap")):
    """Makers with the families to try them on."""
    return [(maker, name) for maker in MAKERS for name in (names if maker == "torch" else c_names)]


TEXT = [(7 * i * i + 3 * i) % 32 for i in range(90)]
"""Without BAD."""
FIRST, SECOND, THIRD = ([*range(n, 75, 3)] for n in range(3))
"""Block tables of three rows, interleaved."""


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = save_family(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


def spoiled(value):
    """A hook by which an embedding has `value` for BAD; a head that is tied to it keeps its own."""

    def spoil(_module, args, found):
        found[args[0] == BAD] = value
        return found

    return spoil


@pytest.fixture
def runner_of(families):
    """A runner whose embedding of BAD is `value`, and whose pool holds `stale` everywhere."""

    def load(name="llama", dtype="float32", maker="auto", *, value=math.nan, stale=0.0):
        runner = load_runner(
            families(name), dtype=dtype, kernels=maker, num_blocks=75, block_size=BLOCK,
            self_test=False,
        )  # fmt: skip
        runner._model.get_input_embeddings().register_forward_hook(spoiled(value))
        for stack in runner._pool._stacks:
            stack.fill_(stale)
        return runner

    return load


def num_passes(runner, monkeypatch):
    """Rows of each pass of the model from now on."""
    passes = []
    run = runner._run

    def counted(rows):
        passes.append(len(rows))
        return run(rows)

    monkeypatch.setattr(runner, "_run", counted)
    return passes


def session(runner):
    """Prefill in chunks beside a whole one, a verify step, a rollback, decoding: all logits."""
    yield runner.forward([RowInput(TEXT[:50], 0, FIRST, 0), RowInput(TEXT[5:9], 0, SECOND, 4)])
    yield runner.forward([RowInput(TEXT[50:70], 50, FIRST, 3), RowInput(TEXT[:60], 0, THIRD, 60)])
    wrong = [(t + 1) % 32 for t in TEXT[70:78]]
    yield runner.forward([RowInput(wrong, 70, FIRST, 8), RowInput(wrong[:3], 60, THIRD, 1)])
    yield runner.forward([RowInput(TEXT[70:75], 70, FIRST, 5), RowInput(TEXT[60:62], 60, THIRD, 2)])
    for at in range(75, 80):
        yield runner.forward(
            [RowInput(TEXT[at : at + 1], at, FIRST, 1), RowInput([at - 70], at - 71, SECOND, 1)]
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stale", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("maker", "name"), made(FAMILIES))
def test_what_others_left_in_the_blocks_never_enters(
    runner_of, monkeypatch, name, stale, dtype, maker
):
    clean, dirty = runner_of(name, dtype, maker), runner_of(name, dtype, maker, stale=stale)
    passes = num_passes(dirty, monkeypatch)
    for want, got in zip(session(clean), session(dirty), strict=True):
        assert torch.equal(want, got)
    assert set(passes) == {2}, "right at once, not when looked at again"


def assert_same(name, got, want):
    """To the bit; but how many tokens an expert gets, and so its rounding, is the batch's doing."""
    if name == "qwen3_moe":
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    else:
        assert torch.equal(got, want)


def beside(runner, bad, start, num_logits):
    """One step of the row under test between two others; their logits, and its own."""
    rows = [
        RowInput(TEXT[:5], 0, FIRST, 3),
        RowInput(bad, start, SECOND, num_logits),
        RowInput(TEXT[10:30], 0, THIRD, 2),
    ]
    logits = runner.forward(rows)
    return torch.cat([logits[:3], logits[-2:]]), logits[3 : 3 + num_logits]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 10, 21])
@pytest.mark.parametrize(
    ("maker", "name"), made(["llama", "mistral_window", "gemma2_softcap", "qwen3_moe"])
)
def test_a_broken_row_is_told_and_changes_no_bit_of_the_others(
    runner_of, name, place, value, dtype, maker
):
    runner = runner_of(name, dtype, maker, value=value)
    sound = TEXT[40:62]
    want, _ = beside(runner, sound, 0, 1)
    assert runner.broken == frozenset()
    got, own = beside(runner, [*sound[:place], BAD, *sound[place + 1 :]], 0, 1)
    assert_same(name, got, want)
    assert runner.broken == {1}
    assert own.isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("maker", "name"), made(["llama", "mistral_window", "gemma3_window"]))
def test_a_prefill_chunk_is_told_broken_at_once_however_long_ago_the_window_left_it(
    runner_of, name, dtype, maker
):
    runner = runner_of(name, dtype, maker)
    beside(runner, [BAD, *TEXT[: 3 * WINDOW]], 0, 0)
    assert runner.broken == {1}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    ("maker", "name"), made(["llama", "mistral_window", "gemma2_softcap", "qwen3_moe"])
)
def test_a_broken_draft_does_no_harm_to_the_positions_before_it(
    runner_of, name, place, dtype, maker
):
    """Nor to the next step, if it did not stand: its keys and values are still in the block."""
    runner, other = runner_of(name, dtype, maker), runner_of(name, dtype, maker)
    tolerance = {"rtol": 1e-3, "atol": 2e-3} if dtype == "float32" else {"rtol": 0.1, "atol": 0.5}
    drafts = TEXT[41:45]
    for one in (runner, other):
        one.forward([RowInput(TEXT[:40], 0, SECOND, 0)])
    want_others, want = beside(other, [TEXT[40], *drafts], 40, 5)
    drafts[place] = BAD
    others, got = beside(runner, [TEXT[40], *drafts], 40, 5)
    assert_same(name, others, want_others)
    assert runner.broken == frozenset()
    torch.testing.assert_close(got[: place + 1], want[: place + 1], **tolerance)
    assert got[place + 1 :].isnan().all()
    # The drafts from the broken one on are rejected, and the next step feeds less than they were.
    num_kept = 40 + 1 + place
    step = [RowInput(TEXT[num_kept : num_kept + 1], num_kept, SECOND, 1)]
    torch.testing.assert_close(runner.forward(step), other.forward(step), **tolerance)
    assert runner.broken == frozenset()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("maker", MAKERS)
def test_blocks_of_a_broken_row_are_clean_for_the_next_one(runner_of, monkeypatch, dtype, maker):
    runner = runner_of("llama", dtype, maker)
    want, _ = beside(runner, TEXT[40:62], 0, 1)
    runner.forward([RowInput([BAD, *TEXT[:60]], 0, FIRST, 0)])  # a prefill that nobody ends
    runner.forward([RowInput([BAD] * 50, 0, THIRD, 1)])
    passes = num_passes(runner, monkeypatch)
    got, _ = beside(runner, TEXT[40:62], 0, 1)
    assert torch.equal(got, want)
    assert passes == [3]


@pytest.mark.parametrize("num_logits", [0, 1, 3])
def test_ranks_agree_on_what_is_run_again(tmp_path, rank_threads, num_logits):
    path = make_tiny_llama(tmp_path / "m")

    def work(group):
        runner = load_runner(path, num_blocks=75, block_size=BLOCK, ranks=group)
        with torch.no_grad():
            first = 150 * group.rank
            if first <= BAD < first + 150:
                runner._model.get_input_embeddings().embedding.weight[BAD - first] = math.nan
        if group.rank:
            follow(group, runner)
            return None
        leader = Leader(group, pytest.fail)
        runner.lead = leader.lead
        sound = TEXT[40:62]
        want, _ = beside(runner, sound, 0, num_logits)
        got = beside(runner, [*sound[:-2], BAD, sound[-1]], 0, num_logits)
        broken = runner.broken
        after, _ = beside(runner, sound, 0, num_logits)
        leader.stop()
        return want, got, broken, after

    want, (got, own), broken, after = rank_threads.run(2, work)[0]
    assert torch.equal(got, want)
    assert torch.equal(after, want)
    assert broken == (set() if num_logits == 3 else {1})
    assert own.isnan().all(-1).tolist() == [[], [True], [False, True, True]][(num_logits + 1) // 2]


def test_logits_wanted_of_all_tokens_are_right_up_to_the_broken_one(runner_of):
    runner, other = runner_of(), runner_of()
    tokens = TEXT[:12]
    want = other.forward([RowInput(tokens, 0, FIRST, 12)])
    got = runner.forward([RowInput([*tokens[:8], BAD, *tokens[9:]], 0, FIRST, 12)])
    torch.testing.assert_close(got[:8], want[:8], rtol=1e-3, atol=2e-3)
    assert got[8:].isnan().all()
    assert got.shape == (12, VOCAB_SIZE)
    assert runner.broken == frozenset()
