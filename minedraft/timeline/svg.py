"""Draws a Gantt chart of the two devices as SVG. Pure; no plot library.

One lane a device, one colour a batch, the step's number in its box. Idle time is white.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.plain_text import plain_xml
from minedraft.timeline.window import LANES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minedraft.admin import Span

# Okabe-Ito: told apart by colour-blind readers, and black text stays readable on them.
_COLOURS: Final = ("#56b4e9", "#e69f00", "#8fd3b6", "#cc79a7", "#f0e442", "#d9a07f", "#b7b7f0",
                   "#c0c0c0")  # fmt: skip
_WIDTH: Final = 1120
_LEFT: Final = 96
_RIGHT: Final = 24
_TOP: Final = 84
_LANE: Final = 46
_GAP: Final = 18
_CHAR: Final = 6.6  # width of a digit at font-size 11
_TICKS: Final = 10
_NAMES: Final = {"draft": "drafter", "verify": "verifier"}


def render(spans: Sequence[Span], *, title: str, subtitle: str = "") -> str:
    """Draw `spans`.

    Args:
        spans: What to show; the time axis begins with the first.
        title: First line.
        subtitle: Second line: mode, models, whatever a reader needs to know.

    Returns:
        An SVG document.
    """
    height = _TOP + len(LANES) * (_LANE + _GAP) + 58
    return "\n".join(
        (
            *_head(height, title, subtitle),
            *_legend(spans),
            *_axis(spans),
            *_lanes(),
            *(line for span in spans for line in _box(spans, span)),
            "</svg>",
            "",
        )
    )


def _head(height: int, title: str, subtitle: str) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="Helvetica, Arial, sans-serif">'
    )
    yield f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    yield (
        f'<text x="24" y="30" font-size="17" font-weight="bold" fill="#1a1a1a">'
        f"{plain_xml(title)}</text>"
    )
    yield f'<text x="24" y="50" font-size="12" fill="#555555">{plain_xml(subtitle)}</text>'


def _scale(spans: Sequence[Span]) -> tuple[int, int]:
    if not spans:
        return 0, 1_000_000
    begin = min(span.start_ns for span in spans)
    return begin, max(1, max(span.end_ns for span in spans) - begin)


def _x(spans: Sequence[Span], time_ns: int) -> float:
    begin, length = _scale(spans)
    return _LEFT + (time_ns - begin) / length * (_WIDTH - _LEFT - _RIGHT)


def _y(lane: str) -> int:
    return _TOP + LANES.index(lane) * (_LANE + _GAP)


def _legend(spans: Sequence[Span]) -> Iterator[str]:
    batches = sorted({span.batch for span in spans})
    x = _WIDTH - _RIGHT - 84 * len(batches)
    for batch in batches:
        yield f'<rect x="{x}" y="20" width="13" height="13" rx="2" fill="{_colour(batch)}"/>'
        yield f'<text x="{x + 19}" y="31" font-size="12" fill="#333333">batch {batch}</text>'
        x += 84


def _axis(spans: Sequence[Span]) -> Iterator[str]:
    begin, length = _scale(spans)
    bottom = _TOP + len(LANES) * (_LANE + _GAP)
    step_ns = _tick_ns(length)
    for i in range(length // step_ns + 1):
        x = _x(spans, begin + i * step_ns)
        yield f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#e8e8e8"/>'
        yield (
            f'<text x="{x:.1f}" y="{bottom + 18}" font-size="11" fill="#666666" '
            f'text-anchor="middle">{i * step_ns / 1e6:g}</text>'
        )
    yield (
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{bottom + 40}" font-size="12" '
        f'fill="#666666" text-anchor="middle">milliseconds; numbers in the boxes are steps: '
        f"a batch is drafted, then verified, under one number</text>"
    )


def _tick_ns(length_ns: int) -> int:
    """Find the round distance (1, 2 or 5 times a power of ten) that gives about ten ticks."""
    rough = max(1, length_ns // _TICKS)
    power = 1
    while power * 10 <= rough:
        power *= 10
    return next((factor * power for factor in (1, 2, 5) if factor * power >= rough), 10 * power)


def _lanes() -> Iterator[str]:
    for lane in LANES:
        y = _y(lane)
        yield (
            f'<text x="{_LEFT - 12}" y="{y + _LANE / 2 + 4:.0f}" font-size="13" fill="#1a1a1a" '
            f'text-anchor="end">{_NAMES[lane]}</text>'
        )
        yield (
            f'<line x1="{_LEFT}" y1="{y + _LANE + _GAP // 2}" x2="{_WIDTH - _RIGHT}" '
            f'y2="{y + _LANE + _GAP // 2}" stroke="#d0d0d0"/>'
        )


def _box(spans: Sequence[Span], span: Span) -> Iterator[str]:
    if span.lane not in LANES:
        return
    x, y = _x(spans, span.start_ns), _y(span.lane)
    width = max(_x(spans, span.end_ns) - x, 0.6)
    tip = (
        f"step {span.step_id}, batch {span.batch}, {_NAMES[span.lane]}: "
        f"{span.timing.total_ns / 1e6:.2f} ms, {span.num_rows} rows, {span.num_tokens} tokens"
    )
    if span.num_draft_tokens:
        tip += f", {span.num_accepted_tokens} of {span.num_draft_tokens} drafts accepted"
    if span.num_prefill_rows:
        tip += f", {span.num_prefill_rows} rows of prompt"
    dash = ' stroke-dasharray="3 2"' if span.num_prefill_rows else ""
    yield (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_LANE}" rx="2" '
        f'fill="{_colour(span.batch)}" stroke="#333333" stroke-width="0.6"{dash}>'
        f"<title>{plain_xml(tip)}</title></rect>"
    )
    label = str(span.step_id)
    if width > len(label) * _CHAR + 4:
        yield (
            f'<text x="{x + width / 2:.1f}" y="{y + _LANE / 2 + 4:.0f}" font-size="11" '
            f'fill="#1a1a1a" text-anchor="middle" pointer-events="none">{label}</text>'
        )


def _colour(batch: int) -> str:
    return _COLOURS[batch % len(_COLOURS)]
