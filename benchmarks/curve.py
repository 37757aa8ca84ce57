"""Draws throughput over concurrency as SVG, a line per shape, a panel per pair. No plot library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Speeds = Mapping[int, Mapping[str, float]]
    """By concurrency and name: tokens/s."""

# Okabe-Ito, as in the timeline.
_COLOURS: Final = {"auto": "#000000", "ar": "#56b4e9", "ar_all": "#009e73", "sd": "#e69f00",
                   "psd": "#cc79a7"}  # fmt: skip
_TITLES: Final = {"auto": "auto", "ar": "AR", "ar_all": "AR, all cores", "sd": "SD", "psd": "PSD"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP = 430, 300, 58, 46, 46, 20


@dataclass(frozen=True, slots=True)
class _Panel:
    """One pair's axes."""

    x0: float
    concurrencies: tuple[int, ...]
    highest: float

    def x(self, concurrency: int) -> float:
        """Place of a concurrency; powers of two are evenly spaced."""
        low, high = math.log2(self.concurrencies[0]), math.log2(self.concurrencies[-1])
        share = (math.log2(concurrency) - low) / max(high - low, 1e-9)
        return self.x0 + _LEFT + share * (_WIDTH - _LEFT - 12)

    def y(self, value: float) -> float:
        """Place of a speed."""
        return _TOP + (1 - value / self.highest) * (_HEIGHT - _TOP - _BOTTOM)


def render(pairs: Mapping[str, Speeds], *, subtitle: str = "") -> str:
    """Draw one panel per pair, side by side."""
    width = len(pairs) * (_WIDTH + _GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT + 34}" '
        f'viewBox="0 0 {width} {_HEIGHT + 34}" font-family="Helvetica, Arial, sans-serif" '
        'font-size="11" fill="#333333">'
    )
    lines = [
        head,
        f'<rect width="{width}" height="{_HEIGHT + 34}" fill="#ffffff"/>',
    ]
    for index, (name, speeds) in enumerate(pairs.items()):
        lines += _panel(index * (_WIDTH + _GAP), name, speeds)
    lines += _legend()
    lines.append(f'<text x="{_LEFT}" y="{_HEIGHT + 28}" fill="#666666">{subtitle}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _panel(x0: float, name: str, speeds: Speeds) -> Iterator[str]:
    concurrencies = tuple(sorted(speeds))
    top = max(max(found.values()) for found in speeds.values())
    step = _round(top / 4)
    panel = _Panel(x0, concurrencies, math.ceil(top / step) * step)
    yield f'<text x="{x0 + _LEFT}" y="18" font-size="14" font-weight="bold">{name}</text>'
    for i in range(round(panel.highest / step) + 1):
        y = panel.y(i * step)
        yield (
            f'<line x1="{x0 + _LEFT}" y1="{y:.1f}" x2="{x0 + _WIDTH - 12}" y2="{y:.1f}" '
            'stroke="#e4e4e4"/>'
        )
        yield f'<text x="{x0 + _LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{i * step:g}</text>'
    for concurrency in concurrencies:
        yield (
            f'<text x="{panel.x(concurrency):.1f}" y="{_HEIGHT - _BOTTOM + 18}" '
            f'text-anchor="middle">{concurrency}</text>'
        )
    yield (
        f'<text x="{x0 + (_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        "requests that run; tokens per second</text>"
    )
    for shape, colour in _COLOURS.items():
        points = [(panel.x(c), panel.y(speeds[c][shape])) for c in concurrencies]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        width = 2.6 if shape == "auto" else 1.6
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'


def _legend() -> Iterator[str]:
    for index, (shape, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + index * 76
        yield f'<rect x="{x}" y="26" width="12" height="4" fill="{colour}"/>'
        yield f'<text x="{x + 16}" y="33">{_TITLES[shape]}</text>'


def _round(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(max(value, 1e-9)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * 0.999)
