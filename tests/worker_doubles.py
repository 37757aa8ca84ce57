"""A verifier and a drafter without models, for tests of the coordinator's core.

They keep tables of their own and assert that every plan fits them exactly. The verifier's pool
records in every slot all tokens up to its position, so a wrong block table, a block that two rows
write, or KV that a plan takes for granted is seen at once. What it did not feed itself, a row may
rely on if another one with the same tokens has fed it. The target's next token is `truth(history)`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from minedraft.plans import (
    DraftPlan,
    DraftResult,
    DraftRowResult,
    RowResult,
    StepTiming,
    VerifyPlan,
    VerifyResult,
)
from minedraft.types import ModelInfo

VOCAB = 50


def truth(history: list[int]) -> int:
    """What the target says after `history`."""
    return (sum(history) * 31 + len(history) * 7) % VOCAB


def continuation(prompt: tuple[int, ...], length: int) -> list[int]:
    """Plain decoding: `truth` again and again."""
    total, output = sum(prompt), []
    for position in range(len(prompt), len(prompt) + length):
        output.append((total * 31 + position * 7) % VOCAB)
        total += output[-1]
    return output


@dataclass(slots=True)
class Row:
    """One row as a worker knows it."""

    history: list[int]
    num_prompt: int
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0


def _check_history(row: Row) -> None:
    prompt = tuple(row.history[: row.num_prompt])
    assert row.history[row.num_prompt :] == continuation(
        prompt, len(row.history) - row.num_prompt
    ), "a committed token is not the target's"


class VerifierDouble:
    """Runs verify plans, those of one batch in order, one session long."""

    def __init__(self, *, num_blocks: int, block_size: int = 4, max_model_len: int = 200) -> None:
        self.info = ModelInfo(
            "target",
            VOCAB,
            max_model_len,
            "f",
            "float32",
            block_size=block_size,
            num_blocks=num_blocks,
        )
        self.rows: dict[int, Row] = {}
        self.ever: set[int] = set()
        self.queue: deque[VerifyPlan] = deque()
        self.pool: list[list[tuple[int, ...]]] = [[()] * block_size for _ in range(num_blocks)]
        self.num_fed = 0
        """Committed tokens."""

    def receive(self, plan: VerifyPlan) -> None:
        """Queue a plan; one without rows is run before the next younger one that has some."""
        to_run = {row.row_id for queued in self.queue for row in queued.rows}
        assert not to_run & set(plan.closes), "a row that a step has still to run"
        self.queue.append(plan)

    def run(
        self, accept=lambda _row_id, k: k, *, drafts_came: bool = True, pick: int = 0
    ) -> VerifyResult | None:
        """Run a plan that has rows.

        Args:
            accept: `accept(row_id, k)` says how many drafts are right.
            drafts_came: Whether there are any.
            pick: Of which batch: 0 is that of the oldest plan.
        """
        heads = list({plan.batch: plan for plan in reversed(self.queue) if plan.rows}.values())
        heads.sort(key=self.queue.index)
        return self.run_plan(heads[pick % len(heads)] if heads else None, accept, drafts_came)

    def run_plan(self, picked, accept=lambda _row_id, k: k, drafts_came: bool = True):
        """Run a plan of the queue, and before it older ones without rows; None: only these."""
        for plan in [*self.queue]:
            if plan is not picked and plan.rows:
                continue
            self.queue.remove(plan)
            self._open_and_close(plan)
            if plan is picked:
                results = tuple(self._run_row(row, accept, drafts_came) for row in plan.rows)
                num_stale = sum(row.num_draft_tokens > 0 for row in plan.rows)
                return VerifyResult(
                    plan.step_id,
                    plan.batch,
                    results,
                    StepTiming(),
                    0 if drafts_came else num_stale,
                )
        return None

    def _open_and_close(self, plan: VerifyPlan) -> None:
        for row_id in plan.closes:
            del self.rows[row_id]  # KeyError: closed twice, or never opened
        for opened in plan.opens:
            assert opened.row_id not in self.ever, "row ids are never used twice"
            self.ever.add(opened.row_id)
            history = [*opened.prompt_token_ids, *opened.output_token_ids]
            self.rows[opened.row_id] = Row(history, len(opened.prompt_token_ids))

    def _run_row(self, plan, accept, drafts_came) -> RowResult:
        row = self.rows[plan.row_id]
        cut = plan.base_len - len(plan.new_token_ids)
        assert 0 < cut <= len(row.history), "a hole in the committed tokens"
        row.history[cut:] = plan.new_token_ids
        assert len(row.history) == plan.base_len <= self.info.max_model_len
        _check_history(row)
        end = plan.num_computed + plan.num_feed
        assert plan.num_feed >= 1
        assert end <= plan.base_len
        assert plan.num_draft_tokens == 0 or end == plan.base_len
        self._extend_blocks(plan, row, end + plan.num_draft_tokens)
        for position in range(plan.num_computed):
            slot = tuple(row.history[: position + 1])
            assert self._slot(row, position) == slot, "KV that the plan relies on is not there"
        for position in range(plan.num_computed, end):
            self._write(row, position, row.history[position])
        row.num_computed = end
        self.num_fed += plan.num_feed
        if end < plan.base_len:
            return RowResult(plan.row_id, plan.base_len, ())
        k = plan.num_draft_tokens if drafts_came else 0
        accepted = min(accept(plan.row_id, k), k)
        tokens: list[int] = []
        for _ in range(accepted + 1):
            tokens.append(truth(row.history + tokens))
        drafts = [*tokens[:accepted], *([VOCAB] * (k - accepted))]  # VOCAB: never right
        for offset, draft in enumerate(drafts):
            self._write(row, plan.base_len + offset, draft, tokens[:offset])
        row.num_computed += accepted
        return RowResult(plan.row_id, plan.base_len, tuple(tokens), k, accepted)

    def _extend_blocks(self, plan, row: Row, num_positions: int) -> None:
        size = self.info.block_size
        assert plan.block_offset <= len(row.blocks)
        want = -(-num_positions // size)
        if plan.block_offset < len(row.blocks):
            assert plan.block_offset == row.num_computed // size, "others computed what follows"
            assert plan.num_computed >= (plan.block_offset + 1) * size, "for nothing"
        else:
            want = max(len(row.blocks), want)
        row.blocks[plan.block_offset :] = plan.new_block_ids
        assert len(row.blocks) == want, "blocks for exactly the positions about to be written"
        written = row.blocks[plan.num_computed // size :]
        closing = {row_id for queued in self.queue for row_id in queued.closes}
        for row_id, other in self.rows.items():
            if row_id not in closing and other is not row:
                full = other.blocks[: other.num_computed // size]
                assert not set(full) & set(written), "a block of a row that nobody has closed"

    def _slot(self, row: Row, position: int) -> tuple[int, ...]:
        size = self.info.block_size
        return self.pool[row.blocks[position // size]][position % size]

    def _write(self, row: Row, position: int, token: int, drafts: Sequence[int] = ()) -> None:
        size = self.info.block_size
        before = [*row.history, *drafts][:position]
        self.pool[row.blocks[position // size]][position % size] = (*before, token)


class DrafterDouble:
    """Runs draft plans first-in first-out, one link long.

    Args:
        epoch: Of the link.
        max_model_len: Positions it has.
        num_slow: Plans after which it still says that it is behind.
    """

    def __init__(self, epoch: int, *, max_model_len: int = 200, num_slow: int = 0) -> None:
        self.info = ModelInfo("draft", VOCAB, max_model_len, "f", "float32", drafter_kind="model")
        self.epoch = epoch
        self.num_slow = num_slow
        self.rows: dict[int, Row] = {}

    def run(self, plan: DraftPlan) -> DraftResult | None:
        """Run a plan at once; None if it only closes."""
        assert plan.epoch == self.epoch
        for row_id in plan.closes:
            del self.rows[row_id]
        for opened in plan.opens:
            assert opened.row_id not in self.rows
            history = [*opened.prompt_token_ids, *opened.output_token_ids]
            self.rows[opened.row_id] = Row(history, len(opened.prompt_token_ids))
        for drafted in plan.rows:
            row = self.rows[drafted.row_id]
            cut = drafted.base_len - len(drafted.new_token_ids)
            assert 0 < cut <= len(row.history)
            row.history[cut:] = drafted.new_token_ids
            assert len(row.history) == drafted.base_len
            assert drafted.base_len + drafted.num_draft_tokens <= self.info.max_model_len
            _check_history(row)
        if not plan.rows:
            return None
        num_drafts = sum(row.num_draft_tokens for row in plan.rows)
        is_behind = self.num_slow > 0
        self.num_slow -= is_behind
        return DraftResult(
            plan.step_id,
            plan.batch,
            num_drafts,
            len(plan.rows),
            StepTiming(),
            epoch=self.epoch,
            rows=tuple(
                DraftRowResult(row.row_id, row.base_len, is_behind)
                for row in plan.rows
                if is_behind or not row.num_draft_tokens
            ),
        )
