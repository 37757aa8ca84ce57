"""A core with doubles for workers that runs trial steps and takes time; for tests of trials."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from minedraft.plans import StepTiming
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Request
from minedraft.types import Mode, RequestId, RowParams
from tests.worker_doubles import DrafterDouble, VerifierDouble

if TYPE_CHECKING:
    from minedraft.plans import DraftPlan, DraftResult, VerifyPlan, VerifyResult

MS = 1_000_000
PSD = Mode(2, 4, 3)


class TrialWorld:
    """See the module docstring. A step takes what `verify_ns` and `draft_ns` say."""

    def __init__(self, mode: Mode = PSD, *, trial_s: float = 10.0, num_blocks: int = 200) -> None:
        self.core = Core(mode, trial_s=trial_s)
        self.num_blocks = num_blocks
        self.verifier: VerifierDouble | None = None
        self.drafter: DrafterDouble | None = None
        self.source: DraftSource | None = None
        self.num_links = self.now_ns = 0
        self.verify_answers: list[VerifyResult] = []
        self.draft_answers: list[DraftResult] = []
        self.trials: list[tuple[DraftPlan | None, VerifyPlan]] = []
        """All that were planned."""
        self.num_steps = 0
        """Verify steps of requests."""

    # -- what steps take --------------------------------------------------------------------

    def verify_ns(self, num_tokens: int) -> int:
        return (20 + num_tokens) * MS

    def draft_ns(self, num_rows: int, k: int, num_tokens: int) -> int:
        return int((2 + num_tokens / 4 + max(k - 1, 0) * (1 + num_rows)) * MS)

    # -- events -----------------------------------------------------------------------------

    def verifier_up(self, name: str = "target") -> None:
        self.verifier = VerifierDouble(num_blocks=self.num_blocks, max_model_len=600)
        self.core.verifier_up(replace(self.verifier.info, name=name))
        self.plan()

    def drafter_up(self, name: str = "draft") -> None:
        self.num_links += 1
        self.drafter = DrafterDouble(self.num_links, max_model_len=600)
        self.source = DraftSource(self.num_links, replace(self.drafter.info, name=name))
        self.core.serve(self.source)
        self.plan()

    def verifier_lost(self) -> None:
        self.core.verifier_lost(may_have_died=True)
        self.verifier = self.drafter = self.source = None
        self.verify_answers.clear()
        self.draft_answers.clear()

    def drafter_lost(self) -> None:
        assert self.source is not None
        self.core.drop(self.source)
        self.drafter = self.source = None
        self.draft_answers.clear()
        self.plan()

    def submit(self, request_id: str, max_tokens: int = 6) -> None:
        self.core.submit(Request(RequestId(request_id), (1, 2, 3), RowParams(), max_tokens))
        self.plan()

    def plan(self) -> None:
        """Send what is planned now; both workers run it at once, and their answers wait."""
        for draft, verify in self.core.plan():
            step_id = verify.step_id or (draft.step_id if draft is not None else 0)
            if self.core.trials.owns(step_id):
                self.trials.append((draft, verify))
            else:
                self.num_steps += bool(verify.rows)
            if draft is not None and draft.epoch == self.num_links and self.drafter is not None:
                self._draft(draft)
            if self.verifier is not None and (verify.rows or verify.closes):
                self.verifier.receive(verify)
                self._verify()

    def _draft(self, draft: DraftPlan) -> None:
        answer = self.drafter.run(draft)
        if answer is None:
            return
        fed = [r for r in draft.opens if r.row_id in {row.row_id for row in draft.rows}]
        num_tokens = sum(len(row.prompt_token_ids) for row in fed) or len(draft.rows)
        k = max(row.num_draft_tokens for row in draft.rows)
        answer = replace(
            answer,
            num_rows=sum(row.num_draft_tokens > 0 for row in draft.rows),
            num_catch_up_tokens=num_tokens,
            timing=StepTiming(self.now_ns + 1, self.draft_ns(len(draft.rows), k, num_tokens)),
        )
        self.draft_answers.append(answer)

    def _verify(self) -> None:
        plans = {plan.step_id: plan for plan in self.verifier.queue if plan.rows}
        while (result := self.verifier.run()) is not None:
            rows = plans[result.step_id].rows
            drafts = sum(row.num_draft_tokens for row in result.rows)
            ns = self.verify_ns(sum(row.num_feed for row in rows) + drafts)
            timing = StepTiming(self.now_ns + 1, ns)
            self.verify_answers.append(replace(result, timing=timing))

    def answer_verify(self) -> None:
        self.core.apply(
            self.verify_answers.pop(0),
            lambda request, row: Kept(
                len(row.token_ids),
                "length"
                if len(request.output_token_ids) + len(row.token_ids) >= request.max_tokens
                else None,
            ),
        )
        self._went_on()

    def answer_draft(self) -> None:
        self.core.on_draft_result(self.draft_answers.pop(0))
        self._went_on()

    def answer(self) -> None:
        """Whoever owes the core something answers, the drafter first."""
        if self.draft_answers:
            self.answer_draft()
        elif self.verify_answers:
            self.answer_verify()

    def run_dry(self) -> None:
        """Until nothing is owed."""
        while self.draft_answers or self.verify_answers:
            self.answer()

    def _went_on(self) -> None:
        if not (self.draft_answers or self.verify_answers):
            self.now_ns += 1000 * MS
        self.plan()

    # -- looking ----------------------------------------------------------------------------

    @property
    def leg_origins(self) -> tuple[str, ...]:
        costs = self.core.costs
        return (costs.verify.origin.value, *(leg.origin.value for leg in costs.draft_legs))

    def check_nothing_is_left(self) -> None:
        """Of all that was on the workers; nothing is live, and nothing is owed."""
        self.core.check()
        assert self.core.is_idle
        assert self.core.blocks.num_used == 0
        assert self.verifier is None or not self.verifier.rows
        assert self.drafter is None or not self.drafter.rows
