"""Draws lines over one axis as SVG, a panel beside the other. No plot library."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.plain_text import plain_xml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Points = Sequence[Sequence[float]]

# Okabe-Ito, as in the timeline.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460, 320, 52, 16, 70, 44


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of several lines."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Points]
    """By name: pairs of x and y."""
    is_log: bool = False
    marks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Single points with a word beside each."""

    @property
    def xs(self) -> tuple[float, float]:
        """Least and largest x."""
        every = [x for points in self.lines.values() for x, _ in points]
        return min(every), max(every)

    @property
    def top(self) -> float:
        """End of the y axis; it begins at 0."""
        every = [y for points in self.lines.values() for _, y in points]
        step = round_up(max([*every, *(y for _, y in self.marks.values())]) / 5)
        return math.ceil(max(every) / step + 0.2) * step

    def x(self, value: float) -> float:
        """Place of a value on the x axis."""
        low, high = self.xs
        if self.is_log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return _LEFT + (value - low) / max(high - low, 1e-9) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Place of a value on the y axis."""
        return _TOP + (1 - value / self.top) * (_HEIGHT - _TOP - _BOTTOM)


def render(panels: Sequence[Panel]) -> str:
    """Draw panels side by side."""
    width = _WIDTH * len(panels)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}" font-family="Helvetica, Arial, sans-serif" '
        'font-size="11" fill="#333333">'
    )
    drawn = [head, f'<rect width="{width}" height="{_HEIGHT}" fill="#ffffff"/>']
    for index, panel in enumerate(panels):
        drawn.append(f'<g transform="translate({index * _WIDTH} 0)">')
        drawn += [*_axes(panel), *_lines(panel), *_marks(panel)]
        drawn.append("</g>")
    return "\n".join([*drawn, "</svg>", ""])


def _axes(panel: Panel) -> Iterator[str]:
    title = plain_xml(panel.title)
    yield f'<text x="{_LEFT}" y="20" font-size="14" font-weight="bold">{title}</text>'
    step = round_up(panel.top / 6)
    for count in range(math.floor(panel.top / step + 1e-9) + 1):
        y = panel.y(count * step)
        yield (
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" '
            'stroke="#e4e4e4"/>'
        )
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{count * step:g}</text>'
    for tick in _ticks(panel):
        yield (
            f'<text x="{panel.x(tick):.1f}" y="{_HEIGHT - _BOTTOM + 16}" '
            f'text-anchor="middle">{tick:g}</text>'
        )
    label = f"{panel.y_label}; x: {panel.x_label}"
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 8}" fill="#666666">{plain_xml(label)}</text>'


def _ticks(panel: Panel) -> list[float]:
    low, high = panel.xs
    if panel.is_log:
        first, last = round(math.log10(low)), round(math.log10(high))
        return [10.0**power for power in range(first, last + 1)]
    return sorted({x for points in panel.lines.values() for x, _ in points})


def _lines(panel: Panel) -> Iterator[str]:
    for index, (name, points) in enumerate(panel.lines.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(f"{panel.x(x):.1f},{panel.y(y):.1f}" for x, y in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        x, y = _LEFT + index % 3 * 130, 34 + index // 3 * 14
        yield f'<rect x="{x}" y="{y}" width="12" height="4" fill="{colour}"/>'
        yield f'<text x="{x + 16}" y="{y + 6}">{plain_xml(name)}</text>'


def _marks(panel: Panel) -> Iterator[str]:
    for name, (at, value) in panel.marks.items():
        x, y = panel.x(at), panel.y(value)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#d55e00"/>'
        is_left = x < _WIDTH / 2  # else the words would leave the panel
        at_x, anchor = (x + 7, "start") if is_left else (x - 7, "end")
        yield (
            f'<text x="{at_x:.1f}" y="{y + 4:.1f}" fill="#d55e00" text-anchor="{anchor}" '
            'stroke="#ffffff" stroke-width="3" paint-order="stroke">'
            f"{plain_xml(name)}</text>"
        )


def round_up(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(max(value, 1e-9)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * 0.999)
