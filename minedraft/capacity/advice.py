"""What to buy: the best layout, the next, and what there is without a second device. Pure.

The best few of the closed form are simulated; the simulator has the last word on their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.capacity.confirm import Confirmed, confirm
from minedraft.capacity.price import gain
from minedraft.capacity.search import Candidate, search

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from minedraft.capacity.question import Question

NUM_CONFIRMED: Final = 5
"""Candidates that are simulated; and the two beside them, if they are others."""
CARRIES: Final = 0.95
"""Least share of requests that begin in time which counts as carried: arrivals are few."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate, simulated."""

    candidate: Candidate
    confirmed: Confirmed
    gain: float
    """G: its rotation over one batch of as many requests."""

    def score(self, question: Question) -> tuple[bool, int, float]:
        """Smaller is better."""
        found, slo = self.confirmed, question.slo
        keeps = (
            found.begun >= CARRIES
            and found.tpot_ms_p95 <= slo.tpot_ms
            and found.ttft_ms_p95 <= slo.ttft_ms
        )
        steps, mean, _ = self.candidate.score
        # What the simulator says of the time per token at the highest rate holds for the others.
        return (not keeps, steps, mean * found.tpot_ms_p50 / self.candidate.usual.tpot_ms)


@dataclass(frozen=True, slots=True)
class Advice:
    """See the module docstring."""

    question: Question
    best: Choice
    runner_up: Choice | None
    """None: there is one layout only."""
    shared: Choice | None
    """The drafter on the target's device; None: it does not fit, or there is no drafter."""
    plain: Choice | None
    """No speculation at all; None: it keeps no SLO."""
    most_rate: float
    """The most requests per second that any layout carries, of those asked."""
    num_priced: int
    """Structures that fit."""
    num_confirmed: int


def advise(
    question: Question,
    told: Callable[[float], None] = lambda _share: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Advice:
    """Answer a question.

    Args:
        question: Models, devices and load.
        told: Called now and then with the share that is done, 0..1.
        goes_on: Asked before each simulation but those that the answer needs; False ends them.

    Raises:
        ConfigError: nothing fits, or nothing keeps the SLO.
    """
    found = search(question)
    told(_PRICED)
    top = found[:NUM_CONFIRMED]
    shared = next((each for each in found if each.layout.is_shared), None)
    plain = next((each for each in found if each.layout.drafter is None), None)
    needed = list(dict.fromkeys([*top[:2], *(each for each in (plain, shared) if each)]))
    choices = _confirmed(needed, question, told, lambda: True, _NEEDED)
    rest = [each for each in top if each not in choices]
    choices |= _confirmed(rest, question, told, goes_on, 1.0)
    told(1.0)
    ranked = sorted(
        (choices[each] for each in top if each in choices), key=lambda each: each.score(question)
    )
    return Advice(
        question=question,
        best=ranked[0],
        runner_up=ranked[1] if len(ranked) > 1 else None,
        shared=_best(choices, question, lambda each: each.layout.is_shared),
        plain=_best(choices, question, lambda each: each.layout.drafter is None),
        most_rate=max(each.carried_rate for each in found),
        num_priced=len(found),
        num_confirmed=len(choices),
    )


def _best(
    choices: Mapping[Candidate, Choice], question: Question, is_one: Callable[[Candidate], bool]
) -> Choice | None:
    """The best of the simulated ones of a kind; None: there is none."""
    found = [choice for each, choice in choices.items() if is_one(each)]
    return min(found, key=lambda each: each.score(question), default=None)


_PRICED: Final = 0.1
"""Share of the work that the closed form is taken for."""
_NEEDED: Final = 0.6
"""Share after the simulations that the answer needs."""


def _confirmed(
    candidates: Sequence[Candidate],
    question: Question,
    told: Callable[[float], None],
    goes_on: Callable[[], bool],
    end: float,
) -> dict[Candidate, Choice]:
    choices: dict[Candidate, Choice] = {}
    begin = _NEEDED if end > _NEEDED else _PRICED
    for done, each in enumerate(candidates):
        if not goes_on():
            break

        def part(share: float, done: int = done) -> None:
            told(begin + (end - begin) * (done + min(share, 1.0)) / len(candidates))

        costs = each.layout.costs(question)
        choices[each] = Choice(
            each,
            confirm(each, question, told=part),
            gain(each.layout, question, each.usual.batch_size, costs),
        )
        part(1.0)
    return choices
