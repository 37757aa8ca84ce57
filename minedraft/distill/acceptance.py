"""Measures greedy acceptance with dense forward passes: slow, but simple enough to trust.

It refuses to use the engine: this is the figure the engine's own acceptance is held against. A
greedy draft is right up to its first mismatch, and up to there it continues the target's own text,
so the drafter's choices along that text say everything about every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

    from minedraft.hub.progress import Progress


@dataclass(frozen=True, slots=True)
class AcceptanceReport:
    """Counts over all prompts."""

    num_tokens: int
    """Target tokens, without the first of each answer, which prefill yields."""
    num_matches: int
    """Of these, tokens that the drafter chooses as well after the same text."""
    num_steps: int
    """Verify steps."""
    num_proposed: int
    """k per step. Drafts past the end of an answer count as refused."""
    num_accepted: int

    @property
    def match_rate(self) -> float:
        """Per-token match, 0..1."""
        return self.num_matches / max(1, self.num_tokens)

    @property
    def acceptance_rate(self) -> float:
        """Accepted over proposed, 0..1."""
        return self.num_accepted / max(1, self.num_proposed)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens per verify step, accepted ones and the target's own."""
        return self.num_tokens / max(1, self.num_steps)


@torch.inference_mode()
def measure_acceptance(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: Sequence[list[int]],
    progress: Progress,
    *,
    num_draft_tokens: int = 4,
    max_new_tokens: int = 64,
) -> AcceptanceReport:
    """Count what greedy speculation would accept.

    Args:
        target: In evaluation mode.
        draft: Same vocabulary.
        prompts: Token ids, each at least one.
        progress: Told the prompts done.
        num_draft_tokens: k >= 1.
        max_new_tokens: Longest answer.
    """
    totals = [0] * 5
    for done, prompt in enumerate(prompts):
        progress("acceptance", done, len(prompts), "items")
        ids = torch.tensor([prompt], device=target.device)
        out = target.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
        )
        choices = draft(out[:, :-1].to(draft.device), logits_to_keep=out.shape[1] - len(prompt) - 1)
        answer = out[0, len(prompt) :].tolist()
        # Choice i follows answer[: i + 1], so it stands against answer token i + 1.
        guesses = choices.logits[0].argmax(-1).tolist() if len(answer) > 1 else []
        matches = [a == b for a, b in zip(answer[1:], guesses, strict=True)]
        counts = walk(matches, num_draft_tokens)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    progress("acceptance", len(prompts), len(prompts), "items")
    return AcceptanceReport(*totals)


def walk(matches: Sequence[bool], num_draft_tokens: int) -> tuple[int, int, int, int, int]:
    """Step through one answer.

    Args:
        matches: Whether the drafter would choose answer token i, for every token after the first.
        num_draft_tokens: k >= 1.

    Returns:
        The fields of `AcceptanceReport` in order.
    """
    position = steps = proposed = accepted = 0
    while position < len(matches):
        window = matches[position : position + num_draft_tokens]
        run = next((i for i, is_match in enumerate(window) if not is_match), len(window))
        steps += 1
        proposed += num_draft_tokens
        accepted += run
        position += run + 1
    return len(matches), sum(matches), steps, proposed, accepted
