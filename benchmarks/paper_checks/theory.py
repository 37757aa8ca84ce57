"""T_SD / T_PSD over alpha V: what the rotation is worth where drafting longer pays ever less. Pure.

A drafter that drafts for a time t has success with probability f(t) = 1 - exp(-alpha t). In turns
a success takes (V + t) / f(t), which is least where exp(x) = 1 + x + alpha V with x = alpha t. In
rotation it takes max(V, t) / f(t), which is least at t = V. Both sides choose their own t.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lines import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPECTED = {0.2: 1.61, 1.256: 2.0, 1.68: 1.98, 5.2: 1.59}
"""By alpha V."""
PAPER = (1.68, 1.59)
"""The point that MineDraft's theorem names: at least 37 % less time."""


def ratio(alpha_v: float, sync: float = 0.0) -> float:
    """T_SD / T_PSD.

    Args:
        alpha_v: alpha V; > 0.
        sync: What a step costs beside its legs, over V; on both sides.
    """
    alpha_s = alpha_v * sync
    in_turns = math.exp(_root(alpha_v + alpha_s))
    best = _root(alpha_s) if sync else 0.0
    if best > alpha_v:
        return in_turns / math.exp(best)  # it pays to draft for longer than V
    return in_turns * (1 - math.exp(-alpha_v)) / (alpha_v + alpha_s)


def _root(constant: float) -> float:
    """Solve exp(x) = 1 + x + constant for x > 0."""
    x = math.log1p(constant + math.sqrt(2 * constant))
    for _ in range(50):
        x -= (math.exp(x) - 1 - x - constant) / (math.exp(x) - 1)
    return x


def measure() -> dict[str, Any]:
    points = [10 ** (step / 20 - 2) for step in range(61)]
    return {
        "curves": {
            "no sync": [[at, ratio(at)] for at in points],
            "sync 0.1 V": [[at, ratio(at, 0.1)] for at in points],
            "sync 0.5 V": [[at, ratio(at, 0.5)] for at in points],
        },
        "computed": {str(at): ratio(at) for at in EXPECTED},
        "paper": list(PAPER),
    }


def lines(report: dict[str, Any]) -> Iterator[Line]:
    for at, wanted in EXPECTED.items():
        found = report["computed"][str(at)]
        text = f"theory at alpha V = {at:g}: computed over {wanted:g}, off by"
        yield Line(text, abs(found / wanted - 1), 0.01, detail=f"{found:.3f}")
