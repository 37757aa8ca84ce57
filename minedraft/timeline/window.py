"""Which spans a picture shows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.admin import Span

LANES = ("draft", "verify")
"""Top to bottom."""


def last_steps(spans: Sequence[Span], num_steps: int) -> tuple[Span, ...]:
    """Pick the spans of the newest verify steps, with what the drafter did meanwhile.

    Args:
        spans: Any order.
        num_steps: Verify spans to keep; > 0.

    Returns:
        By start time; empty if there are none.
    """
    ordered = sorted(spans, key=lambda span: span.start_ns)
    verifies = [span for span in ordered if span.lane == "verify"][-num_steps:]
    if not verifies:
        return tuple(ordered[-num_steps:])
    begin, end = verifies[0].start_ns, max(span.end_ns for span in verifies)
    return tuple(
        span
        for span in ordered
        # a draft that ends where the window begins is not part of the picture
        if span.end_ns > begin and span.start_ns < end
    )
