"""Chi-square on a vocabulary of 8: what is emitted has the target's law."""

from __future__ import annotations

import functools
import math

import pytest
import torch

from minedraft.model.sampling import Position, SamplingRow, distributions
from minedraft.policy_options import PolicyOptions
from minedraft.selection import Scored, Selection, select
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.policy import POLICIES, policy_named
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.step_view import DecodingSequence, Limits, StepView
from minedraft.types import Acceptance, RequestId, RowId, RowParams
from tests.chi_square import assert_drawn_from
from tests.toy_pair import PROMPT, Toy, exact_law, history, index_of, open_rows, verify
from tests.unit.services.coordinator.core.policies.views import SOURCE, known_costs

TARGET = Toy()
DRAFTER = TARGET.near(0.8)
N = 3000
SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"temperature": 1.0, "top_k": 4},
    {"temperature": 1.2, "top_p": 0.8},
    {"temperature": 1.0, "presence_penalty": 1.0},
]
SAME = Acceptance.COUPLED, Acceptance.REJECTION


def assert_law(rows, params, length=2):
    counts = [0] * 8**length
    for row in rows:
        counts[index_of(row.output_token_ids[:length], 8)] += 1
    assert_drawn_from(counts, exact_law(TARGET, params, length).tolist())


def rows_of(setting) -> list[SamplingRow]:
    return open_rows([RowParams(seed=1000 + s, **setting) for s in range(N)])


def generate(rows, rule, ks_of, length=2, width=8, uncoupled=None):
    """Run until every row has `length` tokens; ks_of(rows) is each row's number of drafts."""
    step = 0
    while rows_left := [r for r in rows if len(r.output_token_ids) < length]:
        ks = ks_of(rows_left)
        drafts, qs = DRAFTER.draft(
            rows_left, ks, width if rule is Acceptance.REJECTION else 0, uncoupled
        )
        verify(TARGET, rows_left, drafts, qs if rule is Acceptance.REJECTION else None, rule)
        step += 1
        assert step <= length


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("rule", list(Acceptance))
def test_pairs_of_tokens_have_the_law_of_the_target(rule, k, setting):
    rows = rows_of(setting)
    generate(rows, rule, lambda live: [k] * len(live))
    assert_law(rows, RowParams(**setting))


@pytest.mark.parametrize("width", [1, 2, 5])
def test_rejection_is_exact_for_any_width_of_q(width):
    rows = rows_of({"temperature": 1.0})
    generate(rows, Acceptance.REJECTION, lambda live: [2] * len(live), width=width)
    assert_law(rows, RowParams(temperature=1.0))


@pytest.mark.parametrize("rule", list(Acceptance))
def test_drafts_from_another_seed_are_as_lossless(rule):
    rows = rows_of({"temperature": 1.0})
    generate(rows, rule, lambda live: [2] * len(live), uncoupled=10**9)
    assert_law(rows, RowParams(temperature=1.0))


@pytest.mark.parametrize("rule", list(Acceptance))
def test_number_of_drafts_that_depends_on_the_past_is_lossless(rule):
    rows = rows_of({"temperature": 1.0})
    generate(
        rows, rule, lambda live: [(sum(r.output_token_ids) + r.params.seed) % 4 for r in live], 3
    )
    assert_law(rows, RowParams(temperature=1.0), 3)


@pytest.mark.parametrize("uncoupled", [None, 10**9])
def test_picking_drafts_by_their_own_confidence_is_lossless_when_coupled(uncoupled):
    """TETRIS admits the likelier draft only: 0.5 would become 0.7 under rejection."""
    target, drafter = Toy(2), Toy(2)
    target.table = torch.zeros(2, 2, 2)
    drafter.table = torch.tensor([0.6, 0.4]).log().expand(2, 2, 2)
    rows = [SamplingRow(RowParams(temperature=1.0, seed=s), (0, 1)) for s in range(N)]
    drafts, _ = drafter.draft(rows, [1] * N, uncoupled_seed=uncoupled)
    verify(target, rows, [d if d == [0] else [] for d in drafts])
    ones = sum(row.output_token_ids[0] for row in rows)
    assert_drawn_from([N - ones, ones], [0.5, 0.5])


def test_the_same_pick_is_not_lossless_under_rejection():
    """The reason why policies that look at drafts need the coupled rule."""
    target, drafter = Toy(2), Toy(2)
    target.table = torch.zeros(2, 2, 2)
    drafter.table = torch.tensor([0.6, 0.4]).log().expand(2, 2, 2)
    rows = [SamplingRow(RowParams(temperature=1.0, seed=s), (0, 1)) for s in range(N)]
    drafts, qs = drafter.draft(rows, [1] * N, 2, 10**9)
    admitted = [(d, q) if d == [0] else ([], []) for d, q in zip(drafts, qs, strict=True)]
    verify(target, rows, *zip(*admitted, strict=True), Acceptance.REJECTION)
    ones = sum(row.output_token_ids[0] for row in rows)
    assert_drawn_from([N - ones, ones], [0.7, 0.3])


# -- policies ---------------------------------------------------------------------------------

POLICY_OPTIONS = PolicyOptions(
    num_speculative_tokens_per_batch_size="[[1, 4, 1], [5, 8, 3]]", tetris_extra_proposals=1
)


@functools.cache
def known_costs_once():
    return known_costs(verify_ms=(10.0, 1.0), draft_ms=(0.5, 0.01))


def decided(policy, rows, k):
    """What a policy says of a batch of toy rows, some of which have drafted before."""
    limits = Limits(k + 1, 64, 1000, 1000, source=SOURCE, num_batches=2)
    requests = []
    for index, row in enumerate(rows):
        request = Request(RequestId(f"r{index}"), PROMPT, row.params, 8, row_id=RowId(index + 1))
        request.acceptance.observe(index % 5, (index + 1) % 3)
        requests.append(request)
    view = StepView(
        batch=0,
        decoding=[DecodingSequence(10, k, 20, 64, 0.7) for _ in rows],
        prefilling=[],
        limits=limits,
        costs=known_costs_once(),
        estimator=Estimator(),
        num_free_blocks=100,
        block_size=16,
        most_draft_tokens=[limits.num_draft_tokens] * len(rows),
        members=requests,
    )
    return policy.choose(view).bounded_by(view)


def surprisals(row, draft):
    """-log q of each draft, as the drafter drew it."""
    found = []
    for index, token in enumerate(draft):
        logits = DRAFTER.logits([history(row, draft[:index])])
        ((ids, q),) = distributions(logits, [Position(row, draft[:index])])
        found.append(-math.log(dict(zip(ids.tolist(), q.tolist(), strict=True))[token]))
    return found


@pytest.mark.parametrize("uncoupled", [None, 10**9])
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_policy_changes_the_law_of_what_is_emitted(name, uncoupled):
    """Each chooses among drafts by what is known of their own tokens: coupled, that is lossless."""
    policy = policy_named(name, POLICY_OPTIONS)
    rows = rows_of({"temperature": 1.0})
    num_cut = 0
    while live := [r for r in rows if len(r.output_token_ids) < 2]:
        for start in range(0, len(live), 64):
            batch = live[start : start + 64]
            decision = decided(policy, batch, 3)
            ks = decision.num_draft_tokens
            drafts, _ = DRAFTER.draft(batch, ks, uncoupled_seed=uncoupled)
            if decision.score:
                scored = [
                    Scored(index, 2, surprisals(row, draft))
                    for index, (row, draft) in enumerate(zip(batch, drafts, strict=True))
                ]
                chosen = select(scored, Selection(decision.budget, 0, decision.curves))
                num_cut += sum(map(len, drafts)) - sum(chosen)
                drafts = [draft[:n] for draft, n in zip(drafts, chosen, strict=True)]
            verify(TARGET, batch, drafts)
    assert_law(rows, RowParams(temperature=1.0))
    assert (num_cut > 0) == (name in {"tetris", "adaspec", "dspark"}) or name == "wcs"


def first_step(rule, setting) -> tuple[list, torch.Tensor, torch.Tensor]:
    """Outcomes of one draft per row, and the two distributions they were drawn from."""
    rows = rows_of(setting)
    drafts, qs = DRAFTER.draft(rows, [1] * N, 8 if rule is Acceptance.REJECTION else 0)
    outcomes = verify(TARGET, rows, drafts, qs if rule is Acceptance.REJECTION else None, rule)
    laws = []
    for model in (TARGET, DRAFTER):
        row = SamplingRow(RowParams(**setting), PROMPT)
        ((ids, p),) = distributions(model.logits([PROMPT]), [Position(row)])
        laws.append(torch.zeros(8, dtype=torch.float64).index_add_(0, ids, p))
    return outcomes, *laws


@pytest.mark.parametrize("setting", SETTINGS[:4], ids=str)
def test_rejection_accepts_as_often_as_the_distributions_overlap(setting):
    outcomes, p, q = first_step(Acceptance.REJECTION, setting)
    overlap = torch.minimum(p, q).sum().item()
    accepted = sum(o.num_accepted for o in outcomes)
    assert_drawn_from([accepted, N - accepted], [overlap, 1 - overlap])


@pytest.mark.parametrize("setting", SETTINGS[:4], ids=str)
def test_coupled_accepts_as_often_as_the_theory_says_and_above_its_bound(setting):
    """P(match) = sum over x of 1 / sum over y of max(p_y / p_x, q_y / q_x) (Daliri et al. 2024)."""
    outcomes, p, q = first_step(Acceptance.COUPLED, setting)
    both = [x for x in range(8) if p[x] > 0 and q[x] > 0]
    match = sum(1 / torch.maximum(p / p[x], q / q[x]).sum().item() for x in both)
    accepted = sum(o.num_accepted for o in outcomes)
    assert_drawn_from([accepted, N - accepted], [match, 1 - match])
    variation = (p - q).abs().sum().item() / 2
    assert (1 - variation) / (1 + variation) <= match + 1e-9 <= 1 - variation + 2e-9
