"""The figures of an answer: a column of text per layout, and their JSON form. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from minedraft.capacity.reasons import layout_in_words

if TYPE_CHECKING:
    from minedraft.capacity.advice import Advice, Choice
    from minedraft.capacity.question import Question


def columns(advice: Advice) -> dict[str, Choice]:
    """Name the layouts that are shown, the recommended one first."""
    named = {
        "recommended": advice.best,
        "runner-up": advice.runner_up,
        "shared device": advice.shared,
        "plain": advice.plain,
    }
    return {name: choice for name, choice in named.items() if choice is not None}


def column(choice: Choice, question: Question) -> dict[str, str]:
    """Write the figures of one layout, by label."""
    candidate, found = choice.candidate, choice.confirmed
    layout, price = candidate.layout, candidate.usual
    most = candidate.most_rate * question.output_tokens
    rates = {
        f"ms/token at {rate:.3g}/s": "-" if at is None else f"{at.tpot_ms:.1f}"
        for rate, at in zip(question.rates, candidate.prices, strict=True)
    }
    return {
        "devices used": f"{layout.num_devices}",
        "services x TP": f"{layout.num_groups} x {layout.tp}",
        "drafter": _drafter(choice),
        "k; batches x requests": f"{layout.k}; {layout.num_batches} x {candidate.batch_size}",
        "V / t, ms": f"{price.verify_ms:.1f} / {price.draft_ms:.1f}",
        "step, ms; tokens of it": f"{price.step_ms:.1f}; {price.tokens:.2f}",
        "G, equal concurrency": f"{choice.gain:.2f}",
        **rates,
        "requests/s carried": f"{candidate.carried_rate:.3g}",
        "requests/s at most": f"{candidate.most_rate:.3g}",
        "tokens/s at most": f"{most:.0f}",
        "... per device": f"{most / layout.num_devices:.0f}",
        "simulated: in time": f"{found.begun:.0%}",
        "ms/token p50 / p95": f"{found.tpot_ms_p50:.1f} / {found.tpot_ms_p95:.1f}",
        "TTFT p50 / p95, ms": f"{found.ttft_ms_p50:.0f} / {found.ttft_ms_p95:.0f}",
        "GB, target device": _gb(candidate.memory.target, layout.device.memory),
        "GB, draft device": (
            _gb(candidate.memory.draft, layout.draft_device.memory) if layout.draft_device else "-"
        ),
    }


def to_json(advice: Advice) -> dict[str, Any]:
    """All figures, by name of the layout."""
    return {
        name: {
            "layout": layout_in_words(choice),
            "num_devices": choice.candidate.layout.num_devices,
            "carried_rate": choice.candidate.carried_rate,
            "most_rate": choice.candidate.most_rate,
            "gain": choice.gain,
            "price": asdict(choice.candidate.usual),
            "batch_size": choice.candidate.batch_size,
            "memory": asdict(choice.candidate.memory),
            "simulated": asdict(choice.confirmed),
        }
        for name, choice in columns(advice).items()
    }


def _drafter(choice: Choice) -> str:
    layout = choice.candidate.layout
    if layout.drafter is None:
        return "-"
    name = layout.drafter.shape.name
    return f"{layout.num_drafters} x {name}" if layout.num_drafters > 1 else name


def _gb(needed: float, there: float) -> str:
    return f"{needed / 1e9:.0f} of {there / 1e9:.0f}"
