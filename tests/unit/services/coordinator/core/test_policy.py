from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import InvalidRequestError
from minedraft.services.coordinator.core import policies
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.decision import Decision
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.policies.fixed import Fixed
from minedraft.services.coordinator.core.policy import POLICIES, policy_named
from minedraft.services.coordinator.core.request import Request
from minedraft.types import Mode, RequestId, RowParams
from tests.worker_doubles import DrafterDouble, VerifierDouble, continuation

if TYPE_CHECKING:
    from minedraft.plans import RowResult
    from minedraft.services.coordinator.core.step_view import StepView


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_can_be_made_by_its_name(name):
    assert isinstance(policy_named(name), POLICIES[name])
    assert policy_named(name) is not policy_named(name), "each core has its own"


def test_fixed_is_the_policy_unless_another_is_asked_for():
    assert isinstance(policy_named("fixed"), Fixed)
    Core(Mode(1, 1, 1))


def test_an_unknown_policy_is_refused_with_the_names_that_there_are():
    with pytest.raises(InvalidRequestError, match=r"'fxied', want one of: .*fixed") as err:
        Core(Mode(1, 1, 1), policy="fxied")
    assert err.value.field == "policy"


def test_every_file_of_policies_is_in_the_table():
    files = {path.stem for path in Path(policies.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {made.__module__.rpartition(".")[2] for made in POLICIES.values()}


class Whims:
    """A policy that asks for anything, too much included, but feeds something in each step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def choose(self, view: StepView) -> Decision:
        return Decision(
            [self.rng.randint(-3, 40) for _ in view.decoding],
            [self.rng.randint(1, 40) for _ in view.prefilling],
            self.rng.randint(1, 40),
        )


@given(seed=st.integers(0, 2**32), num_blocks=st.sampled_from((10, 20, 60)))
@settings(max_examples=30, deadline=None)
def test_no_policy_changes_an_output(seed, num_blocks):
    core = Core(Mode(2, 3, 4), prefill_budget_tokens=8)
    core._planner._scheduler._policy = Whims(seed)
    verifier, drafter = VerifierDouble(num_blocks=num_blocks), DrafterDouble(1)
    core.verifier_up(verifier.info)
    core.serve(DraftSource(1, drafter.info))
    requests = [
        Request(RequestId(f"r{i}"), tuple(range(1, 4 + i)), RowParams(), 12) for i in range(8)
    ]
    for request in requests:
        core.submit(request)

    def keep(request: Request, row: RowResult) -> Kept:
        num_output = len(request.output_token_ids) + len(row.token_ids)
        return Kept(len(row.token_ids), "length" if num_output == request.max_tokens else None)

    num_steps = 0
    while core.requests:
        for draft, verify in core.plan():
            if draft is not None and (note := drafter.run(draft)) is not None:
                core.on_draft_result(note)
            verifier.receive(verify)
        result = verifier.run(lambda row_id, k, turn=num_steps: (row_id + turn) % (k + 1))
        core.apply(result, keep)
        core.check()
        num_steps += 1
        assert num_steps < 1000, "starvation"
    for request in requests:
        assert request.output_token_ids == continuation(request.prompt_token_ids, 12)
