"""Prices a layout in closed form: steps, tokens per second, time per token. Pure.

In a steady state every request that ends is replaced, so a step of m rows that give E tokens each
also feeds m * E * prompt / output prompt tokens: prefill needs no case of its own. A step takes
what `shapes.step_ns` says, and the messages where nothing hides them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from minedraft.capacity.acceptance import tokens_per_step
from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.shapes import step_ns

if TYPE_CHECKING:
    from minedraft.capacity.layout import Layout
    from minedraft.capacity.question import Question
    from minedraft.services.coordinator.core.shapes import StepCosts

LINK_SHARE: Final = 2 / 3
"""A packet between drafter and verifier over a message of the coordinator's."""
MIN_BUDGET: Final = 512
"""Least prompt tokens that a step may feed: the coordinator's default."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one group of a layout does with batches of m."""

    batch_size: int
    verify_ms: float
    """V."""
    draft_ms: float
    """t; 0 without drafts."""
    step_ms: float
    """Between the ends of two verify steps, of any batch."""
    tokens: float
    """Per request and verify step of its batch."""
    tokens_per_s: float
    tpot_ms: float
    ttft_ms: float
    """Without queueing: half a round until its batch is planned, then as many as its prompt needs.
    """
    prompt_tokens: float
    """Fed beside each step."""

    def rate(self, output_tokens: int) -> float:
        """Requests per second that it carries at the very most."""
        return self.tokens_per_s / output_tokens


def price(layout: Layout, question: Question, batch_size: int, costs: StepCosts) -> Price:
    """Price one group.

    Raises:
        ConfigError: a measured table knows nothing of such steps.
    """
    k, rows = layout.k, batch_size
    alpha = layout.drafter.acceptance if layout.drafter else 0.0
    tokens = tokens_per_step(alpha, k) if k else 1.0
    prompts = rows * tokens * question.prompt_tokens / question.output_tokens
    context = round(rows * question.mean_context)
    fed = round(rows * (1 + k) + prompts)
    catch_up = round(rows * (1 + alpha**k) + prompts)
    depths = (rows,) * k

    def verify(overlapped: float) -> float:
        return _known(costs.verify_ns(fed, rows, context, overlapped=overlapped), "verify")

    def draft(overlapped: float) -> float:
        if not k:
            return 0.0
        return _known(costs.draft_ns(depths, catch_up, context, overlapped=overlapped), "draft")

    verify_ns, draft_ns = verify(0.0), draft(0.0)
    parts, gap_ns = layout.num_batches, question.hop_ms * 1e6 * (2 + (LINK_SHARE if k else 0))
    if parts > 1:
        # Each leg runs beside the other one for as long as that one takes.
        in_verify, in_draft = min(draft_ns / verify_ns, 1.0), min(verify_ns / draft_ns, 1.0)
        verify_ns, draft_ns = verify(in_verify), draft(in_draft)
    alone_ns = (verify_ns + draft_ns + gap_ns) / parts
    step = max(step_ns(parts, max(layout.num_drafters, 1), verify_ns, draft_ns), alone_ns)
    round_ms = parts * step / 1e6
    budget = max(MIN_BUDGET, 2 * prompts)
    return Price(
        batch_size=rows,
        verify_ms=verify_ns / 1e6,
        draft_ms=draft_ns / 1e6,
        step_ms=step / 1e6,
        tokens=tokens,
        tokens_per_s=rows * tokens / step * 1e9,
        tpot_ms=round_ms / tokens,
        ttft_ms=round_ms * (0.5 + max(question.prompt_tokens / budget, 1.0)),
        prompt_tokens=prompts,
    )


def prefill_budget(at: Price) -> int:
    """Prompt tokens that a step should be allowed: twice what it needs in the mean."""
    return max(MIN_BUDGET, math.ceil(2 * at.prompt_tokens))


def gain(layout: Layout, question: Question, batch_size: int, costs: StepCosts) -> float:
    """G: the rotation over one batch of as many requests, the same devices and k.

    Over 1 two batches win; 1 without a rotation.
    """
    if layout.num_batches == 1:
        return 1.0
    whole = replace(layout, num_batches=1, num_drafters=1)
    rotating = price(layout, question, batch_size, costs).tokens_per_s
    in_turns = price(whole, question, layout.num_batches * batch_size, costs).tokens_per_s
    return rotating / in_turns


def _known(ns: float | None, what: str) -> float:
    if ns is None:
        raise ConfigError(f"costs: nothing is known of {what} steps")
    return max(ns, 1.0)
