from __future__ import annotations

from minedraft.services.coordinator.core.deaths import Deaths
from minedraft.services.coordinator.core.request import Phase, Request
from minedraft.services.coordinator.core.step import Step
from minedraft.services.coordinator.core.suspects import apart
from minedraft.types import RequestId, RowId, RowParams


def requests(count: int) -> list[Request]:
    return [Request(RequestId(f"r{i}"), (1,), RowParams(), 9) for i in range(count)]


def step(*members: Request, num_rows: int | None = None) -> Step:
    """A step in flight; some of its rows may have ended meanwhile."""
    rows = {RowId(i): 0 for i in range(1, 1 + (len(members) if num_rows is None else num_rows))}
    return Step(1, 0, dict(zip(rows, members, strict=False)), rows)


def dies(deaths: Deaths, *steps: Step, has_died: bool = True) -> list[Request]:
    deaths.lost(steps)
    return deaths.verdict(has_died=has_died)


def test_one_alone_with_the_verifier_at_its_third_death_is_given_up():
    deaths, (bad,) = Deaths(), requests(1)
    assert dies(deaths, step(bad)) == []
    assert deaths.on_trial == []
    assert dies(deaths, step(bad)) == []
    assert deaths.on_trial == [bad]
    assert dies(deaths, step(bad)) == [bad]


def test_everybody_in_flight_is_counted_and_nobody_in_company_is_given_up():
    deaths, (a, b, c) = Deaths(), requests(3)
    for _ in range(5):
        assert dies(deaths, step(a, b), step(c)) == []
    assert deaths.on_trial == [a, b, c]
    assert dies(deaths, step(a, num_rows=2)) == []  # the other one ended meanwhile
    assert dies(deaths, step(a)) == [a]


def test_a_network_that_flaps_is_no_death():
    deaths, (innocent,) = Deaths(), requests(1)
    for _ in range(9):
        assert dies(deaths, step(innocent), has_died=False) == []
    assert (innocent.num_deaths, deaths.on_trial) == (0, [])


def test_a_death_is_counted_once_and_only_for_those_who_still_live():
    deaths, (a, b) = Deaths(), requests(2)
    b.phase = Phase.FINISHED
    dies(deaths, step(a, b))
    assert deaths.verdict(has_died=True) == []
    assert (a.num_deaths, b.num_deaths) == (1, 0)


def test_a_step_of_decoding_clears():
    deaths, (request,) = Deaths(), requests(1)
    for _ in range(2):
        dies(deaths, step(request))
    request.phase = Phase.PREFILLING
    request.commit((7,))  # each new process begins with that
    assert deaths.on_trial == [request]
    request.phase = Phase.VERIFYING
    request.commit((7,))
    assert deaths.on_trial == []
    assert dies(deaths, step(request)) == []


def test_those_on_trial_step_alone():
    deaths, (a, b, c) = Deaths(), requests(3)
    dies(deaths, step(a, b, c))
    assert apart([a, b, c]) == [[a, b, c]]
    dies(deaths, step(b))
    assert apart([a, b, c]) == [[b], [a, c]]
