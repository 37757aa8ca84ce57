from __future__ import annotations

import random

import pytest
import torch

from minedraft.errors import ConfigError, StateError
from minedraft.model.kernels import select
from minedraft.model.loader import load_runner
from minedraft.packets.packet import PacketLayout
from minedraft.plans import DraftPlan
from minedraft.services.drafter.draft_engine import DraftEngine
from minedraft.services.drafter.run_ahead import MAX_RUN_AHEAD, parse_run_ahead
from minedraft.types import DebugOptions, RowId, RowParams
from tests.draft_world import GREEDY, Drafter, opened, row
from tests.fake_runner import CONTEXT, VOCAB, continuation
from tests.tiny_models import make_tiny_llama

PROMPT = (1, 2, 3)
HAS_C = select("auto", torch.float32, 1).name.startswith("c/")


def drafter(limit: int | None = None, **options) -> Drafter:
    return Drafter(run_ahead=limit, **options)


def step(made: Drafter, rows, *, opens=(), may_run_ahead=True):
    made.num_steps += 1
    plan = DraftPlan(made.num_steps, 0, 7, tuple(rows), tuple(opens), may_run_ahead=may_run_ahead)
    return made.run(plan)


def idle(made: Drafter) -> int:
    """Draw ahead until there is nothing left to draw; returns the passes."""
    num_calls = len(made.runner.calls)
    while made.engine.ahead.has_work:
        made.engine.run_ahead()
    return len(made.runner.calls) - num_calls


# -- what it draws --------------------------------------------------------------------------


def test_auto_draws_as_much_as_the_next_step_can_use():
    made = drafter()
    step(made, [row(k=4)], opens=[opened()])
    assert idle(made) == 5, "the bonus token, and four drafts after it"
    new = continuation(PROMPT, 5)
    made.runner.calls.clear()
    result = step(made, [row(base_len=8, new=new, k=4)])
    assert made.runner.calls == [], "all of it was there"
    assert made.drafts() == continuation((*PROMPT, *new), 4)
    assert (result.num_ahead_tokens, result.num_catch_up_tokens) == (4, 0)
    assert (made.engine.ahead.num_drawn, made.engine.ahead.num_used) == (5, 4)


def test_a_limit_counts_tokens_beyond_the_drafts():
    made = drafter(2)
    step(made, [row(k=4)], opens=[opened()])
    assert idle(made) == 2
    new = continuation(PROMPT, 5)
    made.runner.calls.clear()
    result = step(made, [row(base_len=8, new=new, k=4)])
    assert len(made.runner.calls) == 3, "one draft was there"
    assert made.drafts() == continuation((*PROMPT, *new), 4)
    assert result.num_ahead_tokens == 1


def test_what_goes_beyond_the_next_step_is_kept_for_the_one_after_it():
    made = drafter(10)
    step(made, [row(k=2)], opens=[opened()])
    idle(made)
    tokens = continuation(PROMPT, 6)
    made.runner.calls.clear()
    step(made, [row(base_len=6, new=tokens[:3], k=2)])
    step(made, [row(base_len=9, new=tokens[3:], k=2)])
    assert made.runner.calls == []
    assert made.drafts() == continuation((*PROMPT, *tokens), 2)


def test_after_a_rejection_nothing_of_it_is_used():
    made = drafter()
    step(made, [row(k=4)], opens=[opened()])
    idle(made)
    new = [*continuation(PROMPT, 1), (continuation(PROMPT, 2)[1] + 1) % VOCAB]
    result = step(made, [row(base_len=5, new=new, k=4)])
    assert made.drafts() == continuation((*PROMPT, *new), 4)
    assert result.num_ahead_tokens == 0
    assert made.engine.ahead.num_used == 0


def test_a_wrong_guess_of_the_bonus_token_saves_what_was_fed_before_it():
    made = drafter()
    step(made, [row(k=4)], opens=[opened()])
    idle(made)
    *drafts, bonus = continuation(PROMPT, 5)
    new = [*drafts, (bonus + 1) % VOCAB]
    made.runner.calls.clear()
    step(made, [row(base_len=8, new=new, k=4)])
    assert list(made.runner.calls[0][0].token_ids) == new[-1:], "the last draft was fed ahead"


def test_nothing_is_drawn_when_it_is_no_use_or_off():
    for made, may_run_ahead in ((drafter(0), True), (drafter(None), False)):
        step(made, [row(k=4)], opens=[opened()], may_run_ahead=may_run_ahead)
        assert idle(made) == 0


def test_a_plan_without_rows_ends_it_if_it_says_so():
    made = drafter()
    step(made, [row(k=4)], opens=[opened()])
    made.run(DraftPlan(0, 0, 7, may_run_ahead=True))
    assert made.engine.ahead.has_work
    made.run(DraftPlan(0, 0, 7, may_run_ahead=False))
    assert not made.engine.ahead.has_work


def test_rows_that_only_catch_up_are_not_drawn_ahead():
    made = drafter()
    step(made, [row(k=0)], opens=[opened()])
    assert idle(made) == 0


def test_it_ends_with_the_positions_of_the_model():
    made = drafter(MAX_RUN_AHEAD)
    prompt = [1] * (CONTEXT - 8)
    step(made, [row(base_len=len(prompt), k=4)], opens=[opened(prompt=prompt)])
    assert idle(made) == 4
    fed = [r.start + len(r.token_ids) for call in made.runner.calls for r in call]
    assert max(fed) == CONTEXT - 1


def test_a_row_whose_numbers_end_is_not_continued():
    tokens = continuation(PROMPT, 8)
    poison = tokens[5]
    assert poison not in (*PROMPT, *tokens[:5])
    made = drafter(poison={poison})
    step(made, [row(k=4)], opens=[opened()])
    assert idle(made) == 3, "the pass over the poisoned token is the last"
    new = tokens[:5]
    result = step(made, [row(base_len=8, new=new, k=4)])
    assert made.drafts() == [poison]
    assert result.num_broken == 1


def test_a_pass_that_fails_ends_it_and_the_next_plan_is_answered():
    made = drafter()
    step(made, [row(k=4)], opens=[opened()])

    def fail(_rows):
        raise StateError("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made.runner, "forward", fail)
        with pytest.raises(StateError):
            made.engine.run_ahead()
    assert not made.engine.ahead.has_work
    new = continuation(PROMPT, 5)
    step(made, [row(base_len=8, new=new, k=4)])
    assert made.drafts() == continuation((*PROMPT, *new), 4)


def test_references_of_benchmarks_are_continued():
    reference = tuple(range(20))
    debug = DebugOptions(synthetic_acceptance=1.0, reference_token_ids=reference)
    made = drafter(kind="synthetic")
    step(made, [row(k=4)], opens=[opened(debug=debug)])
    idle(made)
    made.runner.calls.clear()
    step(made, [row(base_len=8, new=reference[:5], k=4)])
    assert made.runner.calls == []
    assert made.drafts() == list(reference[5:9])


# -- blocks ---------------------------------------------------------------------------------


def test_it_takes_empty_blocks_only():
    made = drafter(block_size=4, num_blocks=2)
    step(made, [row(k=4)], opens=[opened()])
    assert idle(made) == 2, "positions 6 and 7; the third block does not exist"
    assert made.engine.rows.num_blocks_used == 2


def test_it_evicts_no_cached_block():
    made = drafter(block_size=4, num_blocks=4)
    prompt = (5, 6, 7, 8, 9)
    step(made, [row(1, 5, k=1)], opens=[opened(1, prompt)])
    made.run(DraftPlan(0, 0, 7, closes=(RowId(1),)))
    assert made.engine.rows.num_blocks_cached == 1
    step(made, [row(2, 3, k=2)], opens=[opened(2)])
    idle(made)
    assert made.engine.rows.num_blocks_cached == 1


def test_a_row_that_asks_gets_the_blocks_of_what_was_drawn_ahead():
    made = drafter(8, block_size=1, num_blocks=12)
    step(made, [row(1, 3, k=1)], opens=[opened(1)])
    idle(made)
    assert made.engine.rows.num_blocks_used == 11
    prompt = (6, 5, 4, 3, 2, 1)
    step(made, [row(2, 6, k=4)], opens=[opened(2, prompt)], may_run_ahead=False)
    assert made.drafts(2) == continuation(prompt, 4)
    assert made.engine.rows.num_blocks_used == 3 + 9


# -- when it pays ---------------------------------------------------------------------------


def test_auto_pauses_when_it_saves_no_passes_and_tries_again():
    made = drafter()
    history = list(PROMPT)
    step(made, [row(k=2)], opens=[opened()])
    passes = []
    for _ in range(60):
        passes.append(idle(made))
        history.append((continuation(history, 1)[0] + 1) % VOCAB)  # not what was drawn
        step(made, [row(base_len=len(history), new=history[-1:], k=2)])
    assert passes[0] == 3
    assert passes[-1] == 0
    for _ in range(270):
        step(made, [row(base_len=len(history), new=history[-1:], k=2)])
    assert idle(made) == 3


# -- settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "limit"), [("auto", None), ("off", 0), ("1", 1), ("64", 64)])
def test_the_setting_is_a_word_or_a_number(text, limit):
    assert parse_run_ahead(text) == limit


@pytest.mark.parametrize("text", ["", "0", "65", "-1", "on", "1.5", "9" * 5000, "\u0663"])
def test_any_other_setting_is_refused(text):
    with pytest.raises(ConfigError, match="run_ahead="):
        parse_run_ahead(text)


# -- a real model ---------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["c", "torch"])
def test_packets_of_a_real_model_are_the_same_bytes(tmp_path, kernels):
    """Distributions too, where the bits of a row do not depend on how many tokens are fed."""
    if kernels == "c" and not HAS_C:
        pytest.skip("no C kernels for this CPU")
    model = make_tiny_llama(tmp_path / "m")
    layout = PacketLayout(8, 8, 4)
    for q_width in (0, 4) if kernels == "c" else (0,):
        engines = [
            DraftEngine(
                load_runner(str(model), dtype="float32", kernels=kernels, num_blocks=64),
                "model",
                run_ahead=limit,
                q_width=q_width,
            )
            for limit in (0, None)
        ]
        sent = [[], []]
        rng = random.Random(q_width)
        histories = {1: [5, 6, 7], 2: list(range(20, 60)), 3: [9] * 17}
        params = {1: GREEDY, 2: RowParams(seed=3), 3: RowParams(temperature=0.7, seed=4, top_p=0.9)}
        num_used = 0
        for number in range(40):
            opens = [opened(i, h, params=params[i]) for i, h in histories.items()]
            rows = [row(i, len(h), h[-6:], k=rng.randint(1, 4)) for i, h in histories.items()]
            plan = DraftPlan(
                number + 1, 0, 7, tuple(rows), tuple(opens if number == 0 else ()),
                may_run_ahead=True,
            )  # fmt: skip
            for engine, packets in zip(engines, sent, strict=True):
                engine.step(plan, plan_ns=0, send=packets.append)
            assert layout.encode(sent[0][-1]).tobytes() == layout.encode(sent[1][-1]).tobytes()
            for _ in range(rng.randint(0, 6)):
                if engines[1].ahead.has_work:
                    engines[1].run_ahead()
            for i, history in histories.items():
                drawn = engines[1].ahead._items[RowId(i)].drafts
                count = rng.randint(0, 5)
                extra = [] if 0 < count <= len(drawn) else [rng.randrange(300)]
                history += [*drawn[:count], *extra]
                histories[i] = history[:]
            num_used = engines[1].ahead.num_used
        assert num_used > 20
