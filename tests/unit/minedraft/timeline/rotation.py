"""A made-up rotation of two batches, for the pictures."""

from __future__ import annotations

from minedraft.admin import Span
from minedraft.plans import StepTiming

MS = 1_000_000


def spans(num_steps: int = 12, verify_ms: int = 30, draft_ms: int = 24) -> list[Span]:
    """Step n: drafted while step n - 1 is verified, then verified."""
    made = []
    for step in range(1, num_steps + 1):
        start = (step - 1) * verify_ms * MS + 5
        draft = StepTiming(start, draft_ms * MS)
        verify = StepTiming(
            start + verify_ms * MS, (verify_ms - 2) * MS, (verify_ms - 4) * MS, MS, bubble_ns=MS
        )
        made.append(Span("draft", step % 2, step, draft, 4, 16))
        prefill = 1 if step == 1 else 0
        made.append(Span("verify", step % 2, step, verify, 4, 9, 16, 5, prefill))
    return made
