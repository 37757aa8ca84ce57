"""Trial steps among requests, losses and swaps in any order: nothing of them is ever left.

The doubles in tests/trial_world.py check every plan; what is checked here is what trials must not
leave, and that none is planned beside a request.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.types import Mode
from tests.trial_world import TrialWorld


class TrialsMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(
        num_batches=st.sampled_from((2, 1, 3)),
        k=st.sampled_from((3, 0, 1)),
        num_blocks=st.sampled_from((24, 8)),
        trial_s=st.sampled_from((10.0, 0.4)),
    )
    def start(self, num_batches, k, num_blocks, trial_s):
        self.mode = Mode(num_batches, 1, k)
        self.world = TrialWorld(self.mode, trial_s=trial_s, num_blocks=num_blocks)
        self.num_submitted = 0

    @precondition(lambda self: self.world.verifier is None)
    @rule(name=st.sampled_from(("target", "another target")))
    def verifier_comes(self, name):
        self.world.verifier_up(name)

    @precondition(lambda self: self.world.verifier is not None and self.world.drafter is None)
    @rule(name=st.sampled_from(("draft", "another draft")))
    def drafter_comes(self, name):
        self.world.drafter_up(name)

    @precondition(lambda self: self.world.verifier is not None)
    @rule()
    def verifier_goes(self):
        self.world.verifier_lost()

    @precondition(lambda self: self.world.drafter is not None)
    @rule()
    def drafter_goes(self):
        self.world.drafter_lost()

    @precondition(lambda self: self.world.drafter is not None)
    @rule()
    def drafter_is_swapped(self):
        old = self.world.source
        self.world.draft_answers.clear()
        self.world.core.drop(old)
        self.world.drafter_up("swapped in")

    @precondition(lambda self: self.world.verify_answers)
    @rule(times=st.integers(1, 20))
    def verifier_answers(self, times):
        for _ in range(times if self.world.verify_answers else 0):
            if self.world.verify_answers:
                self.world.answer_verify()

    @precondition(lambda self: self.world.draft_answers)
    @rule()
    def drafter_answers(self):
        self.world.answer_draft()

    @rule(times=st.integers(1, 40))
    def everybody_answers(self, times):
        for _ in range(times):
            self.world.answer()

    @rule(max_tokens=st.integers(1, 8))
    def request_comes(self, max_tokens):
        num_trials = len(self.world.trials)
        self.world.submit(f"r{self.num_submitted}", max_tokens)
        self.num_submitted += 1
        assert len(self.world.trials) == num_trials, "a trial was planned beside a request"
        status = self.world.core.trials.status()
        assert status.num_trials - status.num_trials_over <= 1, "the one in flight"

    @precondition(lambda self: self.num_submitted)
    @rule(index=st.integers(0, 1000))
    def request_is_aborted(self, index):
        self.world.core.finish(f"r{index % self.num_submitted}", "abort")
        self.world.plan()

    @rule(k=st.sampled_from((0, 1, 3)))
    def mode_changes(self, k):
        self.world.core.set_mode(Mode(self.mode.num_batches, 1, k))
        self.world.plan()

    @invariant()
    def always(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        world.core.check()
        status = world.core.trials.status()
        assert 0 <= status.num_trials_over <= status.num_trials
        # Every step of a request is counted, and no other.
        assert world.core.counters.num_requests == self.num_submitted
        if not (world.verify_answers or world.draft_answers or world.core.requests):
            world.check_nothing_is_left()

    def teardown(self):
        """Whatever happened, requests end and trials too."""
        if not hasattr(self, "world"):
            return
        if self.world.verifier is None:
            self.world.verifier_up()
        if self.world.drafter is None:
            self.world.drafter_up()
        self.world.plan()
        self.world.run_dry()
        self.world.check_nothing_is_left()
        assert not self.world.core.trials.status().is_measuring
        finished = self.world.core.counters.num_finished
        assert sum(finished.values()) == self.num_submitted


TestTrials = TrialsMachine.TestCase
TestTrials.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
