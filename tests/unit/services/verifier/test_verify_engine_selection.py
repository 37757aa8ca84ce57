"""Outputs do not depend on what is verified: the engine with a budget against plain decoding."""

from __future__ import annotations

import random

import pytest

from minedraft.plans import VerifyPlan
from minedraft.selection import NUM_CLASSES, Curves, Selection
from minedraft.types import Acceptance, RowParams
from tests.fake_runner import VOCAB
from tests.verify_world import Verifier, opened, row

LENGTH, K = 24, 5
PROMPTS = ((1, 2, 3), (4, 5), (9, 8, 7, 6, 5))
GREEDY = [RowParams()] * 3
SAMPLED = [RowParams(temperature=t, seed=seed) for seed, t in enumerate((3.0, 0.4, 3.0))]
CURVES = Curves((1.0,) * (2 * NUM_CLASSES), (-1.0,) * (2 * NUM_CLASSES))


def serve(params, truth=None, *, budget=None, seed=0, scores=None, rule=Acceptance.COUPLED):
    """Outputs of three rows, and per step the drafts verified of each.

    Args:
        params: Of the rows.
        truth: What the target emits; half of the drafts are of it. None: plain decoding.
        budget: Of each step; None: all drafts are verified.
        seed: Of the drafts.
        scores: By chance: scores of a row; None: the packet has none.
    """
    verifier, chance = Verifier(num_blocks=60, rule=rule), random.Random(seed)
    outputs, verified = [[] for _ in PROMPTS], []
    for step in range(1, 100):
        rows, drafts, opens = [], [], []
        for index, (prompt, output) in enumerate(zip(PROMPTS, outputs, strict=True)):
            length = len(prompt) + len(output)
            k = min(K, LENGTH - len(output) - 1) if truth is not None and output else 0
            new, done = (output[-1:], length - 1) if output else ((), 0)
            if step == 1:
                opens.append(opened(index + 1, prompt, params=params[index]))
            elif len(output) >= LENGTH:
                continue
            else:
                new = output[-(K + 1) :]
            blocks = tuple(range(20 * index, 20 * index + 20)) if step == 1 else ()
            rows.append(
                row(index + 1, length, new, done=done, feed=length - done, k=k,
                    blocks=blocks, offset=0 if step == 1 else 20)
            )  # fmt: skip
            if k:
                ids = [
                    token if chance.random() < 0.8 else chance.randrange(VOCAB)
                    for token in truth[index][len(output) : len(output) + k]
                ]
                said = tuple(scores(chance) for _ in ids) if scores else ()
                drafts.append((index + 1, length, tuple(ids), said))
        if not rows:
            return outputs, verified
        selection = None
        if budget is not None:
            offsets = tuple(chance.uniform(-2, 2) for _ in rows)
            selection = Selection(budget, chance.randrange(3), CURVES, offsets)
        plan = VerifyPlan(step, 1, 7, tuple(rows), tuple(opens), selection=selection)
        result = verifier.run(plan, drafts or None)
        assert result.num_stale_drafts == 0
        verified.append([answer.num_draft_tokens for answer in result.rows])
        fed = [len(each.token_ids) for each in verifier.runner.calls[-1]]
        chosen = zip(rows, verified[-1], strict=True)
        assert fed == [each.num_feed + num for each, num in chosen], "what all ranks see"
        for answer in result.rows:
            outputs[answer.row_id - 1].extend(answer.token_ids)
            assert answer.num_accepted_tokens == max(len(answer.token_ids) - 1, 0)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
@pytest.mark.parametrize("budget", [0, 1, 4, 9, 15])
def test_outputs_are_those_of_plain_decoding_whatever_is_verified(params, budget):
    truth, _ = serve(params)
    for seed in range(6):
        outputs, verified = serve(
            params, truth, budget=budget, seed=seed, scores=lambda chance: chance.uniform(0, 4)
        )
        assert outputs == truth
        assert all(sum(counts) <= budget for counts in verified)
        assert sum(verified[1]) == min(budget, 3 * K), "it is used"


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
@pytest.mark.parametrize(
    "scores",
    [
        None,
        lambda _chance: 0.0,
        lambda _chance: 3e38,
        lambda chance: chance.choice((0.0, 1e-45, 3e38)),
    ],
)
def test_a_drafter_that_lies_or_says_nothing_moves_no_output(params, scores):
    truth, _ = serve(params)
    outputs, verified = serve(params, truth, budget=4, scores=scores)
    assert outputs == truth
    assert max(sum(counts) for counts in verified) == 4, "the budget is used"


def test_under_rejection_greedy_rows_share_the_budget_and_sampled_ones_verify_all():
    params = [GREEDY[0], SAMPLED[0], GREEDY[0]]
    truth, _ = serve(params, rule=Acceptance.REJECTION)
    outputs, verified = serve(
        params, truth, budget=2, scores=lambda _chance: 1.0, rule=Acceptance.REJECTION
    )
    assert (outputs[0], outputs[2]) == (truth[0], truth[2])
    second = verified[1]
    assert (second[1], second[0] + second[2]) == (K, 2)
