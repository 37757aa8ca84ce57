from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft import policy_options
from minedraft.errors import ConfigError
from minedraft.policy_options import PolicyOptions
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
    from collections.abc import Callable

    from minedraft.plans import RowResult
    from minedraft.services.coordinator.core.step_view import StepView


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_can_be_made_by_its_name(name):
    assert isinstance(policy_named(name, OPTIONS), POLICIES[name])
    assert policy_named(name, OPTIONS) is not policy_named(name, OPTIONS), "each core has its own"


def test_fixed_is_the_policy_unless_another_is_asked_for():
    assert Core(Mode(1, 1, 1)).decider.name == "fixed"


def test_an_unknown_policy_is_refused_with_the_names_that_there_are():
    with pytest.raises(ConfigError, match=r"policy='fxied', want one of fixed"):
        Core(Mode(1, 1, 1, policy="fxied"))


def test_every_file_of_policies_is_in_the_table():
    files = {path.stem for path in Path(policies.__file__).parent.glob("*.py")} - {"__init__"}
    assert tuple(POLICIES) == policy_options.POLICIES
    assert files == {made.__module__.rpartition(".")[2] for made in POLICIES.values()}


OPTIONS = PolicyOptions(num_speculative_tokens_per_batch_size="[[1, 2, 3], [3, 3, 0]]")


class Whims(Fixed):
    """A policy that asks for anything, too much included, but feeds something in each step."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)

    def choose(self, view: StepView) -> Decision:
        return Decision(
            [self.rng.randint(-3, 40) for _ in view.decoding],
            [self.rng.randint(1, 40) for _ in view.prefilling],
            self.rng.randint(1, 40),
        )


class Flips:
    """Takes another of the policies in one step of three."""

    def __init__(self, core: Core, seed: int) -> None:
        self.core, self.rng = core, random.Random(seed)

    def __call__(self) -> None:
        if self.rng.random() < 1 / 3:
            mode = Mode(2, 3, self.rng.choice((0, 2, 4)), policy=self.rng.choice(sorted(POLICIES)))
            self.core.set_mode(mode)


@given(seed=st.integers(0, 2**32), num_blocks=st.sampled_from((10, 20, 60)))
@settings(max_examples=30, deadline=None)
def test_no_policy_changes_an_output(seed, num_blocks):
    core = Core(Mode(2, 3, 4), prefill_budget_tokens=8)
    core.decider._policy = Whims(seed)
    serve_all(core, num_blocks)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_serves_to_the_end(name):
    serve_all(Core(Mode(2, 3, 4, policy=name), policy_options=OPTIONS), 60)


@given(seed=st.integers(0, 2**32), num_blocks=st.sampled_from((10, 60)))
@settings(max_examples=30, deadline=None)
def test_policies_change_at_any_step(seed, num_blocks):
    core = Core(Mode(2, 3, 4), prefill_budget_tokens=8, policy_options=OPTIONS)
    serve_all(core, num_blocks, Flips(core, seed))
    assert core.mode.policy == core.decider.name


def serve_all(core: Core, num_blocks: int, before_each: Callable[[], None] = lambda: None) -> None:
    """Serve some requests and compare them with plain decoding."""
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
        before_each()
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


def test_a_mode_without_a_policy_leaves_it():
    core = Core(Mode(1, 1, 1, policy="goodput"))
    core.set_mode(Mode(1, 1, 2, policy=""))
    assert core.mode == Mode(1, 1, 2, policy="goodput")


@pytest.mark.parametrize("name", ["fxied", "schedule"])
def test_a_policy_that_cannot_be_is_refused_and_the_old_one_stays(name):
    core = Core(Mode(1, 1, 1))
    with pytest.raises(ConfigError, match=name):
        core.set_mode(Mode(2, 1, 1, policy=name))
    assert core.mode == Mode(1, 1, 1)
