from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.admin import DraftEstimate
from minedraft.errors import ProtocolError
from minedraft.plans import DraftResult, DraftRowResult, Score, StepTiming
from minedraft.services.coordinator.core.acceptance import UNKNOWN
from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.estimator import MAX_KNOWN, Estimator
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.step import Step
from minedraft.types import ModelInfo, RequestId, RowId, RowParams
from tests.drafts_of import Drafter

if TYPE_CHECKING:
    from tests.drafts_of import Row

EASY, HARD = Drafter(0.5, 0.2, 0.0, -0.2), Drafter(-3.0, -3.2, -3.4, -3.6)


def model(name: str, device: str = "cpu") -> ModelInfo:
    return ModelInfo(name, 50, 99, "", "float32", weights_fingerprint=name, device=device)


def estimator_of(*epochs: int) -> Estimator:
    made = Estimator()
    made.verifier_up(model("target"))
    for epoch in epochs:
        made.add_source(epoch, model(f"drafter {epoch}"))
    return made


def request(number: int = 1, temperature: float = 0.0) -> Request:
    made = Request(RequestId(str(number)), (1, 2, 3), RowParams(temperature), 10**6)
    made.row_id = RowId(number)
    return made


def step_of(*requests: Request, k: int = 4, score: Score = Score.MARGIN) -> Step:
    by_row = {each.row_id: each for each in requests}
    return Step(1, 0, by_row, dict.fromkeys(by_row, k), source=1, score=score)


def result_of(*rows: DraftRowResult, epoch: int = 1) -> DraftResult:
    return DraftResult(1, 0, 0, 0, StepTiming(), epoch, rows=rows)


class Served:
    """A request whose drafts are judged in the next step."""

    def __init__(self, estimator: Estimator, made: Request, epoch: int = 1) -> None:
        self.estimator, self.request, self.epoch = estimator, made, epoch
        self.last: tuple[int, Row] | None = None

    def draft(self, row: Row, k: int = 4) -> int:
        """Draft once; return how many labels came with it."""
        request, last = self.request, self.last
        judged = (last[0], last[1].num_matched, last[1].num_resolved) if last else (0, 0, 0)
        told = DraftRowResult(request.row_id, request.num_tokens, False, row.scores, *judged)
        self.estimator.drafted(result_of(told, epoch=self.epoch), step_of(request, k=k), ())
        self.last = (request.num_tokens, row)
        request.num_tokens += row.num_matched + 1
        return judged[2]


def serve(estimator: Estimator, drafter: Drafter, num_labels: int, *numbers: int) -> list[Request]:
    """Serve requests in turn until so many labels came."""
    served = [Served(estimator, request(number)) for number in numbers or (1,)]
    num = 0
    while num < num_labels:
        num += sum(each.draft(drafter.row()) for each in served)
    return [each.request for each in served]


# -- learning -------------------------------------------------------------------------------


def test_curves_mean_and_forecast_come_from_labels():
    estimator = estimator_of(1)
    serve(estimator, EASY, 6_000, 1, 2, 3)
    curves = estimator.curves(1)
    for position in range(4):
        factor = curves.factor(0, position, 2.0)
        assert factor == pytest.approx(EASY.probability(position, 2.0), abs=0.05)
    survival = 1.0
    for position, said in enumerate(estimator.forecast(request(9), 1, 4)):
        survival *= EASY.rate(position)
        assert said == pytest.approx(survival, abs=0.05)
    assert EASY.rate(3) < estimator.mean(1) < EASY.rate(0)


def test_a_request_has_an_effect_and_a_forecast_of_its_own():
    estimator = estimator_of(1)
    easy, hard = (Served(estimator, request(number)) for number in (1, 2))
    for _ in range(500):
        easy.draft(EASY.row())
        hard.draft(HARD.row())
    assert estimator.offset(easy.request) > 0.4
    assert estimator.offset(hard.request) < -0.4
    assert estimator.offset(request(3)) == 0
    first = [estimator.forecast(each.request, 1, 4)[0] for each in (easy, hard)]
    assert first[0] > 0.65
    assert first[1] < 0.5
    new = estimator.forecast(request(3), 1, 4)[0]
    assert first[1] < new < first[0]


def test_another_workload_is_followed_within_500_labels():
    estimator = estimator_of(1)
    served = [Served(estimator, request(number)) for number in range(1, 9)]
    for _ in range(1_000):
        for each in served:
            each.draft(EASY.row())
    num = 0
    while num < 500:
        num += sum(each.draft(HARD.row()) for each in served)
    assert estimator.mean(1) == pytest.approx(HARD.rate(0), abs=0.1)
    for made in (served[0].request, request(99)):
        assert estimator.forecast(made, 1, 1)[0] == pytest.approx(HARD.rate(0), abs=0.15)


def test_labels_come_late_and_in_parts():
    """Drafts past what was verified are judged when the tokens there are committed."""
    estimator, made = estimator_of(1), request()
    scores = (1.0, 2.0, 3.0)
    estimator.drafted(result_of(DraftRowResult(made.row_id, 3, False, scores)), step_of(made), ())
    estimator.drafted(result_of(DraftRowResult(made.row_id, 3, False, (), 3, 2, 2)), None, [made])
    assert estimator.status() == (DraftEstimate(1, 2, None, (1.0, 1.0)),)
    estimator.drafted(result_of(DraftRowResult(made.row_id, 3, False, (), 3, 2, 3)), None, [made])
    assert estimator.status() == (DraftEstimate(1, 3, None, (1.0, 1.0, 0.0)),)
    estimator.drafted(result_of(DraftRowResult(made.row_id, 3, False, (), 3, 2, 3)), None, [made])
    assert estimator.status()[0].num_labels == 3, "said again"


def test_without_labels_the_verifier_s_answers_count():
    estimator = estimator_of(1, 2)
    answer = Answer(
        [], num_drafts=4, num_draft_tokens=16, num_accepted_tokens=12, num_refused_tokens=3
    )
    made = request()
    for _ in range(50):
        estimator.verified(1, answer)
        made.observe(4, 1)
    estimator.verified(2, Answer([]))
    estimator.verified(7, answer)
    assert estimator.mean(1) == pytest.approx(0.8, abs=0.02)
    assert estimator.mean(2) == estimator.mean(7) == UNKNOWN
    assert estimator.forecast(made, 1, 2) == pytest.approx([0.57, 0.33], abs=0.03)
    assert estimator.forecast(request(2), 2, 2) == [0.5, 0.25]
    assert estimator.status() == ()


def test_labels_count_in_place_of_the_verifier_s_answers():
    """These say nothing of drafts that were not verified."""
    estimator = estimator_of(1)
    (made,) = serve(estimator, EASY, 600)
    before = made.acceptance.mean()
    for _ in range(10):
        estimator.verified(1, Answer([], 1, 1, 0, 1))
        made.observe(1, 0)
    assert made.acceptance.mean() == before
    assert estimator.mean(1) > 0.7


def test_when_labels_come_no_more_the_verifier_s_answers_count_again():
    estimator = estimator_of(1)
    (made,) = serve(estimator, EASY, 600)
    for _ in range(200):
        estimator.verified(1, Answer([], 1, 1, 0, 1))
        made.observe(1, 0)
    assert made.acceptance.mean() < 0.2
    assert estimator.mean(1) < 0.2
    assert estimator.forecast(made, 1, 1)[0] < 0.1
    assert estimator.status() == ()
    Served(estimator, made).draft(EASY.row())
    serve(estimator, EASY, 1, 2)
    assert estimator.mean(1) > 0.7, "they come again"


# -- what makes no sense --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (DraftRowResult(RowId(1), 3, False, (1.0,) * 5), "5 scores from 3 on, but 4 drafts"),
        (DraftRowResult(RowId(1), 4, False, (1.0,)), "from 4 on, but 4 drafts were planned from 3"),
        (DraftRowResult(RowId(1), 3, False, (), 3, 2, 3), "3 of the drafts from 3 on are judged"),
    ],
)
def test_more_than_was_asked_for_is_refused(row, why):
    estimator, made = estimator_of(1), request()
    estimator.drafted(
        result_of(DraftRowResult(made.row_id, 3, False, (1.0, 2.0))), step_of(made), ()
    )
    with pytest.raises(ProtocolError, match=why):
        estimator.drafted(result_of(row), step_of(made), ())


def test_what_was_not_asked_for_is_ignored():
    estimator, made = estimator_of(1), request()
    row = DraftRowResult(made.row_id, 3, False, (1.0,) * 4, 2, 1, 2)
    estimator.drafted(result_of(row), step_of(made, score=Score.NONE), ())
    estimator.drafted(result_of(row, epoch=7), step_of(made), ())
    estimator.drafted(result_of(row._replace(row_id=RowId(5))), step_of(made), ())
    estimator.drafted(result_of(row), None, [made])
    assert made.history is None
    assert estimator.status() == ()


_rows = st.builds(
    DraftRowResult,
    st.integers(1, 3).map(RowId),
    st.integers(1, 6),
    st.booleans(),
    st.lists(st.floats(0, 3.4e38), max_size=6).map(tuple),
    st.integers(0, 6),
    st.integers(0, 5),
    st.integers(0, 5),
)


@given(
    st.lists(
        st.tuples(
            st.lists(_rows, max_size=4),
            st.sampled_from(list(Score)),
            st.booleans(),
            st.integers(0, 2),
        ),
        max_size=16,
    )
)
def test_no_answer_of_a_drafter_makes_a_number_that_is_none(results):
    estimator = estimator_of(1)
    requests = [request(1), request(2, 0.4), request(3, 1.0)]
    for rows, score, has_step, num_new in results:
        step = step_of(*requests, score=score) if has_step else None
        try:
            estimator.drafted(result_of(*rows), step, requests)
        except ProtocolError:
            continue
        for each in requests:
            each.num_tokens += num_new
    for each in requests:
        assert math.isfinite(estimator.offset(each))
        forecast = estimator.forecast(each, 1, 32)
        assert all(0 <= b <= a <= 1 for a, b in zip([1.0, *forecast], forecast, strict=False))
        factor = estimator.curves(1).factor(0, 0, 3.4e38, estimator.offset(each))
        assert 0 <= factor <= 1
    assert 0 < estimator.mean(1) < 1


# -- who there is, and earlier runs ---------------------------------------------------------


def test_what_is_known_of_a_drafter_outlives_its_link():
    estimator = estimator_of(1)
    serve(estimator, EASY, 600)
    curves = estimator.curves(1)
    estimator.drop_source(1)
    estimator.drop_source(1)
    assert estimator.curves(1) == estimator_of().curves(1), "a guess"
    estimator.add_source(2, model("drafter 1", device="elsewhere"))
    estimator.add_source(3, model("another"))
    assert estimator.curves(2) == curves
    assert estimator.curves(3) != curves
    estimator.verifier_up(model("another target"))
    assert estimator.curves(2) != curves


def test_a_refit_from_disk_gives_the_same_curves():
    estimator, again = estimator_of(1), Estimator()
    serve(estimator, EASY, 700)
    assert again.seed(estimator.forms()) == {}
    again.verifier_up(model("target"))
    again.add_source(9, model("drafter 1"))
    for mine, other in zip(
        (*again.curves(9).slopes, *again.curves(9).biases),
        (*estimator.curves(1).slopes, *estimator.curves(1).biases),
        strict=True,
    ):
        assert mine == pytest.approx(other, abs=1e-4)
    assert again.forms() == {}, "it has learned nothing"


def test_few_drafters_are_known():
    estimator = estimator_of()
    for epoch in range(1, MAX_KNOWN + 4):
        estimator.add_source(epoch, model(f"drafter {epoch}"))
        served = Served(estimator, request(), epoch)
        for _ in range(3):
            served.draft(EASY.row())
    assert len(estimator.forms()) == MAX_KNOWN
