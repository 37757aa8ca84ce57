from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import StateError
from minedraft.model.sampling import SamplingRow
from minedraft.services.verifier.acceptance import AcceptItem, accept
from minedraft.types import Acceptance, RowParams
from tests.toy_pair import PROMPT, Toy, open_rows, plain, verify

V = 12
TARGET = Toy(V, seed=3)
DRAFTER = TARGET.near(0.7)
LENGTH = 12

params_strategy = st.builds(
    RowParams,
    temperature=st.sampled_from([0.0, 1e-6, 0.7, 1.0, 1.8]),
    top_k=st.sampled_from([0, 0, 1, 5]),
    top_p=st.sampled_from([1.0, 1.0, 0.9, 0.4]),
    min_p=st.sampled_from([0.0, 0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.4]),
    presence_penalty=st.sampled_from([0.0, 0.9]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    logit_bias=st.sampled_from([{}, {3: 1.5, 7: -100.0}]),
    min_tokens=st.sampled_from([0, 5]),
    stop_ids=st.just((4, 9)),
    bad_words=st.sampled_from([(), ((3, 5), (2,), (1, 6, 8))]),
    allowed_token_ids=st.sampled_from([(), (0, 2, 3, 5, 8, 11)]),
    seed=st.integers(0, (1 << 64) - 1),
)


def drafts_of(kind, rows, expected, ks, rng) -> list[list[int]]:
    """Drafts of several characters, good and bad."""
    if kind == "model":
        return DRAFTER.draft(rows, ks)[0]
    drafts = []
    for row, whole, k in zip(rows, expected, ks, strict=True):
        ahead = whole[len(row.output_token_ids) :][:k]
        if kind == "oracle":
            drafts.append(ahead)
        elif kind == "anti-oracle":
            drafts.append([(t + 1) % V for t in ahead])
        elif kind == "half":
            drafts.append([t if rng.random() < 0.6 else rng.randrange(V) for t in ahead])
        else:
            drafts.append([rng.randrange(-2, V + 2) for _ in range(k)])
    return drafts


@pytest.mark.parametrize("kind", ["model", "oracle", "anti-oracle", "half", "random"])
@settings(max_examples=25, deadline=None)
@given(params=st.lists(params_strategy, min_size=1, max_size=4), seed=st.integers(0, 999))
def test_output_equals_the_run_without_drafts(kind, params, seed):
    """Any drafts, any number of them at every step, any parameters, mixed in one batch."""
    expected = plain(TARGET, params, LENGTH + 8)
    rows, rng = open_rows(params), random.Random(seed)
    while min(len(r.output_token_ids) for r in rows) < LENGTH:
        live = [n for n, r in enumerate(rows) if len(r.output_token_ids) < LENGTH]
        rng.shuffle(live)
        chosen = [rows[n] for n in live]
        ks = [rng.choice((0, 1, 3, 7)) for _ in live]
        drafts = drafts_of(kind, chosen, [expected[n] for n in live], ks, rng)
        outcomes = verify(TARGET, chosen, drafts)
        for draft, outcome in zip(drafts, outcomes, strict=True):
            assert len(outcome.token_ids) == outcome.num_accepted + 1
            assert outcome.token_ids[:-1] == draft[: outcome.num_accepted]
            if kind == "oracle":
                assert outcome.num_accepted == len(draft)
            if kind == "anti-oracle":
                assert outcome.num_accepted == 0
    for row, whole in zip(rows, expected, strict=True):
        assert row.output_token_ids == whole[: len(row.output_token_ids)]


@pytest.mark.parametrize("k", [1, 3, 7])
def test_no_forbidden_token_gets_through_and_the_floor_holds_for_every_k(k):
    word = (3, 5)
    params = [
        RowParams(
            temperature=1.0,
            seed=s,
            bad_words=(word,),
            min_tokens=6,
            stop_ids=(4, 9),
            logit_bias={3: 2.0, 5: 2.0, 4: 2.0},
        )
        for s in range(40)
    ]
    rows = open_rows(params)
    rng = random.Random(0)
    while min(len(r.output_token_ids) for r in rows) < LENGTH:
        verify(TARGET, rows, [[rng.choice((3, 5, 4)) for _ in range(k)] for _ in rows])
    for row in rows:
        output = row.output_token_ids
        assert word not in pairwise(output)
        assert not {4, 9} & set(output[:6])
    assert any(4 in row.output_token_ids[6:] for row in rows)


def test_allow_list_and_bad_words_together_never_leave_the_list():
    params = [
        RowParams(
            temperature=1.5, seed=s, allowed_token_ids=(3, 5), bad_words=((3,), (5, 5), (3, 5))
        )
        for s in range(30)
    ]
    rows = open_rows(params)
    for _ in range(6):
        verify(TARGET, rows, [[5, 5, 3]] * len(rows))
    assert {t for row in rows for t in row.output_token_ids} <= {3, 5}


@pytest.mark.parametrize("rule", list(Acceptance))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_draft_outside_the_vocabulary_is_rejected_where_it_stands(rule, temperature):
    params = [RowParams(temperature=temperature, seed=5)] * 4
    expected = plain(TARGET, params[:1], 3)[0]
    good = expected[0]
    rows = open_rows(params)
    drafts = [[good, V, 1], [-1, good], [2**31 - 1], [good, expected[1], -(2**31)]]
    outcomes = verify(TARGET, rows, drafts, rule=rule)
    assert [o.num_accepted for o in outcomes] == [1, 0, 0, 2]
    assert [o.token_ids for o in outcomes] == [expected[:2], expected[:1], expected[:1], expected]


def test_processors_of_a_row_see_no_id_outside_the_vocabulary():
    params = [RowParams(repetition_penalty=1.3, presence_penalty=0.5)]
    outcomes = verify(TARGET, open_rows(params), [[V + 5, 2, 3]])
    assert outcomes[0].num_accepted == 0


@pytest.mark.parametrize("rule", list(Acceptance))
def test_greedy_is_argmax_under_both_rules_whatever_q_says(rule):
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    row = SamplingRow(RowParams(), PROMPT)
    q = [((0, 1), (0.5, 0.5)), ((0,), (1.0,))]
    assert accept(logits, [AcceptItem(row, [1, 0], q)], rule)[0].token_ids == [1, 0, 2]
    assert accept(logits, [AcceptItem(row, [1, 2], q)], rule)[0].token_ids == [1, 0]
    assert accept(logits, [AcceptItem(row, [0, 0], q)], rule)[0].token_ids == [1]


@pytest.mark.parametrize("rule", list(Acceptance))
def test_logprobs_are_of_the_raw_target_one_for_each_emitted_token_and_by_row(rule):
    params = [
        RowParams(temperature=1.0, seed=1, top_k=1, logprobs=5),
        RowParams(temperature=0.0, logit_bias={2: 100.0}, logprobs=0),
        RowParams(temperature=1.0, seed=2),
        RowParams(temperature=1.0, seed=3, logprobs=20),
    ]
    rows = open_rows(params)
    drafts = [plain(TARGET, [p], 3)[0] for p in params]
    outcomes = verify(TARGET, rows, drafts, rule=rule)
    for n, (p, outcome) in enumerate(zip(params, outcomes, strict=True)):
        if p.logprobs is None:
            assert outcome.logprobs is None
            continue
        assert [e.token_id for e in outcome.logprobs] == outcome.token_ids
        for i, entry in enumerate(outcome.logprobs):
            raw = TARGET.logits([[*PROMPT, *outcome.token_ids[:i]]])[0]
            expected = torch.log_softmax(raw, -1)[entry.token_id].item()
            assert entry.logprob == pytest.approx(expected, abs=1e-5)
            assert len(entry.top) == min(p.logprobs, V)
            assert entry.logprob in [x for _, x in entry.top] or p.logprobs < V
        assert n != 1 or all(e.top == () for e in outcome.logprobs)


def test_no_rows_is_no_outcome():
    assert accept(torch.zeros(0, V), [], Acceptance.COUPLED) == []


def test_wrong_number_of_logits_is_a_bug_here():
    row = SamplingRow(RowParams(), PROMPT)
    with pytest.raises(StateError, match=r"\(2, 12\) for 3 positions"):
        accept(torch.zeros(2, V), [AcceptItem(row, [1, 2])], Acceptance.COUPLED)
