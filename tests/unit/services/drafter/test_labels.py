from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minedraft.plans import MAX_DRAFT_TOKENS
from minedraft.services.drafter.labels import MAX_PENDING, Labels, Outcome

TOKEN = st.integers(0, 1)


def outcome_of(base_len, drafts, output) -> Outcome:
    """With every draft verified, and the whole output known."""
    matched = 0
    for position, draft in enumerate(drafts, base_len):
        if position >= len(output) or output[position] != draft:
            break
        matched += 1
    return Outcome(base_len, matched, min(matched + 1, len(drafts), len(output) - base_len))


def judged(labels: Labels, committed) -> Outcome:
    return labels.judge(lambda position: committed[position], len(committed))


@given(
    output=st.lists(TOKEN, min_size=2, max_size=40),
    steps=st.lists(
        st.tuples(st.lists(TOKEN, max_size=5), st.integers(0, 5), st.integers(1, 2)), max_size=60
    ),
)
def test_outcomes_are_those_of_a_replay_that_verifies_everything(output, steps):
    """Whatever was verified: a cut, k = 0, a step that is told twice."""
    labels, length, made, told = Labels(), 1, {}, []
    for drafts, cut, repeats in steps:
        for _ in range(repeats):
            told.append(judged(labels, output[:length]))
            if drafts:
                labels.add(length, drafts)
                made[length] = drafts
        verified = drafts[:cut]
        accepted = outcome_of(length, verified, output).num_matched
        length = min(length + accepted + 1, len(output))
    told += [judged(labels, output) for _ in range(len(steps) + 1)]
    known: dict[int, Outcome] = {}
    for news in filter(None, (news for news in told if news.num_resolved)):
        assert news.num_resolved > known.get(news.judged_len, Outcome()).num_resolved
        known[news.judged_len] = news
    wanted, num_waiting = {}, 0
    for base_len, drafts in made.items():
        if num_waiting:
            num_waiting += 1  # behind the first
            continue
        outcome = outcome_of(base_len, drafts, output)
        if outcome.num_resolved:
            wanted[base_len] = outcome
        if outcome.num_matched == outcome.num_resolved < len(drafts):
            num_waiting = 1  # the output ends before they do
    assert known == wanted
    assert len(labels) == num_waiting


def test_drafts_that_were_cut_off_are_judged_when_the_committed_tokens_reach_them():
    labels = Labels()
    labels.add(3, (5, 6, 7, 8))
    assert judged(labels, (1, 1, 1, 5, 6)) == Outcome(3, 2, 2)
    labels.add(5, (7, 8))
    assert judged(labels, (1, 1, 1, 5, 6)) == Outcome(), "nothing is new"
    assert judged(labels, (1, 1, 1, 5, 6, 7, 9)) == Outcome(3, 3, 4)
    assert judged(labels, (1, 1, 1, 5, 6, 7, 9)) == Outcome(5, 1, 2)
    assert judged(labels, (1, 1, 1, 5, 6, 7, 9)) == Outcome()
    assert len(labels) == 0


def test_what_follows_the_first_wrong_draft_is_not_judged():
    labels = Labels()
    labels.add(1, (5, 6, 7))
    assert judged(labels, (0, 9, 6, 7)) == Outcome(1, 0, 1)
    assert len(labels) == 0


def test_drafts_that_are_made_again_count_once():
    labels = Labels()
    labels.add(1, (5, 6, 7))
    labels.add(1, (5, 6))
    assert judged(labels, (0, 5, 6, 7)) == Outcome(1, 2, 2)
    assert judged(labels, (0, 5, 6, 7)) == Outcome()


def test_what_waits_is_bounded():
    """By a constant, which steps that commit a token each never reach."""
    labels, most = Labels(), 0
    output = [0] * 300
    for length in range(1, 200):
        judged(labels, output[:length])
        labels.add(length, (0,) * MAX_DRAFT_TOKENS)
        most = max(most, len(labels))
    assert most == MAX_DRAFT_TOKENS < MAX_PENDING
    for length in range(200, 300):
        labels.add(length, (0,))
    assert len(labels) == MAX_PENDING
