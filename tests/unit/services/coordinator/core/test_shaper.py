from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from minedraft.plans import Score, StepTiming
from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.shaper import (
    CATCH_UP_STEPS,
    MIN_STEPS,
    PROBE_STEPS,
    Shaper,
)
from minedraft.services.coordinator.core.shapes import Load, Shape
from minedraft.services.coordinator.core.step import Step
from minedraft.types import Mode

PSD = Mode(2, 8, 4, "auto")


class Costs:
    """What a step takes, and what each of its rows (of all depths, for drafts) adds."""

    def __init__(self, verify, draft):
        self.verify, self.draft = verify, draft

    def verify_ns(self, num_tokens, num_rows, context, *, overlapped):
        return None if self.verify is None else self.verify[0] + self.verify[1] * num_rows

    def draft_ns(self, rows_per_depth, num_catch_up_tokens, context, *, overlapped):
        return None if self.draft is None else self.draft[0] + self.draft[1] * sum(rows_per_depth)


FLAT = {"verify": (100.0, 0.0), "draft": (80.0, 0.0)}
"""Memory-bound: two batches gain little."""
STEEP = {"verify": (0.0, 50.0), "draft": (0.0, 10.0)}
"""Compute-bound: two batches gain as much as they hide."""
DEAR_DRAFTS = {"verify": (100.0, 0.0), "draft": (900.0, 0.0)}


def load(num_requests, k=4):
    return Load(num_requests, 100 * num_requests, (num_requests,) * k)


def verified(
    shaper,
    *,
    accepted=3,
    k=4,
    rows=8,
    idle_ns=0,
    total_ns=100,
    source=1,
    num_fed=None,
    is_wide=False,
):
    """One verify step."""
    step = Step(1, 0, {}, dict.fromkeys(range(rows), k), rows if num_fed is None else num_fed)
    step.source = source if k else 0
    step.is_wide = is_wide
    answer = Answer([], rows, rows * k, rows * accepted, 0) if k else Answer([])
    shaper.observe(step, answer, StepTiming(idle_ns=idle_ns, total_ns=total_ns))


def run(
    shaper,
    num_steps,
    *,
    num_requests=8,
    num_drafters=1,
    on_price=True,
    has_spare=False,
    **facts,
):
    """Steps as they come, with a look before each. Returns the shapes that it took."""
    taken = []
    for _ in range(num_steps):
        if shaper.look(num_requests, num_drafters, lambda: load(num_requests), has_spare=has_spare):
            taken.append(shaper.shape)
        k = shaper.shape.num_draft_tokens if num_drafters else 0
        view = shaper._view
        price = view.price_ns if on_price and view and view.price_ns else 100
        is_wide = shaper.shape.is_wide and has_spare
        verified(shaper, k=k, is_wide=is_wide, **{"total_ns": price, **facts})
    return taken


@pytest.mark.parametrize(
    ("costs", "want"),
    [(FLAT, Shape(1, 4)), (STEEP, Shape(2, 4)), (DEAR_DRAFTS, Shape(1, 0))],
)
def test_it_takes_the_shape_that_gives_most_tokens_per_second(costs, want):
    shaper = Shaper(PSD, Costs(**costs))
    run(shaper, 40)
    assert shaper.shape == want
    assert max(shaper.figures, key=shaper.figures.get) == want


def test_figures_are_tokens_per_second():
    shaper = Shaper(PSD, Costs(**STEEP))
    run(shaper, 40)
    # 8 requests with 3 drafts kept each; in one batch V = 400, t = 320.
    assert shaper.figures[Shape(1, 4)] == pytest.approx(1e9 * 32 / 720)
    assert shaper.figures[Shape(2, 4)] == pytest.approx(1e9 * 16 / 200)
    assert shaper.figures[Shape(1, 0)] == pytest.approx(1e9 * 8 / 400)


def test_a_third_batch_for_a_second_drafter():
    shaper = Shaper(PSD, Costs(verify=(0.0, 50.0), draft=(0.0, 18.75)))  # t = 1.5 V
    run(shaper, 40, num_requests=12, accepted=4)
    assert Shape(3, 4) not in shaper.figures
    run(shaper, 40, num_requests=12, num_drafters=2, accepted=4)
    assert shaper.shape == Shape(3, 4)
    assert shaper.max_batch_size == 6, "16 slots"


def test_no_more_batches_than_requests():
    shaper = Shaper(PSD, Costs(**STEEP))
    run(shaper, 40, num_requests=1)
    assert set(shaper.figures) == {Shape(1, 0), Shape(1, 4)}
    assert shaper.shape == PSD_SHAPE, "with one request, two batches are one"


PSD_SHAPE = Shape(2, 4)


@pytest.mark.parametrize("unknown", ["verify", "draft"])
def test_without_costs_it_stays_as_configured(unknown):
    shaper = Shaper(PSD, Costs(**{**FLAT, unknown: None}))
    assert run(shaper, 60) == []
    assert None in shaper.figures.values()


def test_without_acceptance_it_stays_as_configured():
    shaper = Shaper(PSD, Costs(**FLAT))
    assert run(shaper, 60, rows=1, num_requests=8) == []
    run(shaper, 20, rows=1)
    assert shaper.shape == Shape(1, 4), "64 rows were seen"


def test_a_fixed_shape_is_never_left():
    shaper = Shaper(Mode(2, 8, 4, "fixed"), Costs(**FLAT))
    assert run(shaper, 100) == []
    assert shaper.figures == {}


def test_a_switch_needs_a_gain_of_five_percent():
    shaper = Shaper(PSD, Costs(verify=(140.0, 50.0), draft=(9.0, 0.0)))
    run(shaper, 20)
    assert shaper.shape == Shape(1, 4), "all tokens in 549 ns, not half of them in 340"
    shaper._costs.verify, shaper._costs.draft = (0.0, 50.0), (16.0, 0.0)
    assert run(shaper, 5) == []
    figures = shaper.figures
    assert 1 < figures[PSD_SHAPE] / figures[Shape(1, 4)] < 1.05
    assert run(shaper, 40) == []


def test_two_switches_are_eight_steps_apart():
    shaper = Shaper(PSD, Costs(**FLAT))
    at, costs = [], [STEEP, FLAT]
    run(shaper, 8)  # acceptance is known
    for step in range(60):
        shaper._costs = Costs(**costs[step % 2])
        if run(shaper, 1, num_requests=8 + step % 2):
            at.append(step)
    assert len(at) > 3
    assert min(b - a for a, b in itertools.pairwise(at)) >= MIN_STEPS


def test_gaps_between_steps_count_against_the_shape_that_has_them():
    shaper = Shaper(PSD, Costs(**STEEP))
    run(shaper, 40)
    assert shaper.shape == PSD_SHAPE
    before = shaper.figures[PSD_SHAPE]
    taken = run(shaper, 30, on_price=False, total_ns=200, idle_ns=200)
    assert taken == [Shape(1, 4)], "steps take twice their price: 16 tokens in 400, not 32 in 720"
    run(shaper, 4)
    assert shaper.figures[PSD_SHAPE] < 0.6 * before
    run(shaper, 1500)
    assert shaper.shape == PSD_SHAPE, "what was measured of it has faded: it is tried again"


def test_a_stall_changes_little():
    shaper = Shaper(PSD, Costs(**STEEP))
    run(shaper, 40)
    before = shaper.figures[PSD_SHAPE]
    verified(shaper, idle_ns=10**12)
    run(shaper, 5)
    assert shaper.figures[PSD_SHAPE] > 0.8 * before


def test_steps_that_feed_prompts_say_nothing_of_the_shape():
    shaper = Shaper(PSD, Costs(**STEEP))
    run(shaper, 40)
    before = shaper.figures[PSD_SHAPE]
    run(shaper, 30, on_price=False, total_ns=10**6, num_fed=300)
    assert shaper.figures[PSD_SHAPE] == before


def plain_shaper():
    shaper = Shaper(PSD, Costs(**DEAR_DRAFTS))
    run(shaper, 40)
    assert shaper.shape == Shape(1, 0)
    return shaper


def test_plain_decoding_drafts_now_and_then_and_returns_when_drafts_got_better():
    shaper = plain_shaper()
    ks = [shaper.next_k() for _ in range(2 * PROBE_STEPS)]
    assert [i + 1 for i, k in enumerate(ks) if k] == [PROBE_STEPS, 2 * PROBE_STEPS]
    shaper._costs.draft = (350.0, 0.0)
    run(shaper, 20)
    assert shaper.shape == Shape(1, 0), "4 tokens in 450 ns are no better than 1 in 100"
    for _ in range(100):
        verified(shaper, accepted=4, total_ns=450)
    run(shaper, 1)
    assert shaper.shape == Shape(1, 4)


def test_drafters_are_caught_up_every_sixteen_steps_of_plain_decoding():
    shaper = plain_shaper()
    due = []
    for step in range(1, 3 * CATCH_UP_STEPS + 1):
        shaper.next_k()
        if shaper.is_catch_up_due():
            due.append(step)
        assert not shaper.is_catch_up_due()
    assert due == [CATCH_UP_STEPS, 2 * CATCH_UP_STEPS, 3 * CATCH_UP_STEPS]


def test_a_service_without_speculation_catches_nobody_up():
    shaper = Shaper(Mode(1, 8, 0, "auto"), Costs(**FLAT))
    run(shaper, 100)
    assert [shaper.next_k() for _ in range(200)] == [0] * 200
    assert not shaper.is_catch_up_due()
    assert set(shaper.figures) == {Shape(1, 0)}


def test_without_a_drafter_one_batch_decodes_and_with_one_it_drafts_again():
    shaper = Shaper(PSD, Costs(verify=(100.0, 1.0), draft=(10.0, 0.0)))
    assert run(shaper, 20, num_drafters=0) == [Shape(1, 0)]
    run(shaper, 10)
    assert shaper.shape == PSD_SHAPE, "its acceptance gets known in the configured shape"


WIDE = Shape(1, 0, is_wide=True)


def test_the_drafters_cores_are_tried_and_given_back_if_they_do_not_help():
    shaper = Shaper(PSD, Costs(**DEAR_DRAFTS))
    assert run(shaper, 20, has_spare=True, on_price=False, total_ns=130) == [WIDE], "untried"
    assert run(shaper, 60, has_spare=True, on_price=False, total_ns=100) == [Shape(1, 0)]
    assert shaper.figures[WIDE] < shaper.figures[Shape(1, 0)] / 1.05


def test_the_drafters_cores_stay_lent_while_they_help():
    shaper = Shaper(PSD, Costs(**DEAR_DRAFTS))
    run(shaper, 200, has_spare=True, on_price=False, total_ns=55)
    assert shaper.shape == WIDE
    assert shaper.figures[WIDE] == pytest.approx(1e9 * 8 / 55, rel=0.05)
    shaper._costs.draft = (10.0, 0.0)
    run(shaper, 20, has_spare=True, total_ns=55, on_price=False)
    assert shaper.shape.num_draft_tokens == 4, "and go back when drafts pay"


def test_a_verifier_without_spare_cores_ends_it():
    shaper = Shaper(PSD, Costs(**DEAR_DRAFTS))
    run(shaper, 100, has_spare=True, on_price=False, total_ns=55)
    assert run(shaper, 40) == []
    assert shaper._view.shape == Shape(1, 0)


def test_a_batch_is_no_larger_than_the_packets_of_the_link():
    shaper = Shaper(Mode(2, 64, 4, "auto"), Costs(**FLAT), max_rows=64)
    run(shaper, 40)
    assert set(shaper.figures) == {Shape(2, 0), Shape(2, 4)}
    assert shaper.max_batch_size == 64


def test_another_mode_begins_anew():
    shaper = plain_shaper()
    shaper.set_mode(Mode(2, 4, 3, "auto"))
    assert shaper.shape == Shape(2, 3)
    assert shaper.num_accepted is None
    assert shaper.figures == {}
    shaper.set_mode(Mode(1, 4, 3, "fixed"))
    assert shaper.shape == Shape(1, 3)
    assert [shaper.next_k() for _ in range(3)] == [3, 3, 3]


def test_what_is_known_counts_at_once_when_auto_is_set_again():
    shaper = plain_shaper()
    shaper.set_mode(Mode(1, 16, 4, "fixed"))
    assert shaper.shape == Shape(1, 4)
    run(shaper, 3)
    shaper.set_mode(PSD)
    assert run(shaper, 1) == [Shape(1, 0)]


@pytest.mark.parametrize(("score", "want"), [(Score.NONE, 3.0), (Score.MARGIN, 1.5)])
def test_rows_that_drafted_count_though_none_of_their_drafts_was_chosen(score, want):
    shaper = Shaper(PSD, Costs(**FLAT))
    step = Step(1, 0, {}, dict.fromkeys(range(8), 4), 8, source=1, score=score)
    answer = Answer([], num_drafts=4, num_accepted_tokens=12, num_offered=8)
    for _ in range(40):
        shaper.observe(step, answer, StepTiming(total_ns=100))
    assert shaper.num_accepted == pytest.approx(want)


def test_sizes_share_the_slots():
    shaper = Shaper(Mode(2, 8, 4, "auto"), SimpleNamespace())
    sizes = []
    for num_batches in (1, 2, 3, 5):
        shaper.switch(Shape(num_batches, 4))
        sizes.append(shaper.max_batch_size)
    assert sizes == [16, 8, 6, 4]
    assert shaper.num_switches == 4
