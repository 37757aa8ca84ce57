"""Says in sentences why a layout was chosen, and what the figures rest on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.capacity.acceptance import SOURCE
from minedraft.capacity.advice import CARRIES
from minedraft.capacity.known_models import MODELS
from minedraft.capacity.price import prefill_budget
from minedraft.capacity.roofline import EAGER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.capacity.advice import Advice, Choice

_CLOSE = 0.03
"""Difference of two figures that nobody should decide by."""
_GAINS = 1.05


def layout_in_words(choice: Choice) -> str:
    """Describe a layout in one line."""
    layout, size = choice.candidate.layout, choice.candidate.batch_size
    groups = f"{layout.num_groups} services, each: " if layout.num_groups > 1 else ""
    target = f"target on {layout.tp} x {layout.device.name}"
    if layout.drafter is None:
        return f"{groups}{target}, no speculation, batch of {size}"
    name = layout.drafter.shape.name
    if layout.draft_device is None:
        where = "on the target's device" if layout.tp == 1 else "on one of the target's devices"
    else:
        where = f"on {layout.num_drafters} x {layout.draft_device.name}"
    batches = f"{layout.num_batches} batches" if layout.num_batches > 1 else "1 batch"
    return f"{groups}{target}, {name} {where}, k = {layout.k}, {batches} of {size}"


def reasons(advice: Advice) -> Iterator[str]:
    """Say why, one sentence after the other."""
    best = advice.best
    yield _of_rate(advice)
    yield _of_legs(best)
    if best.candidate.layout.num_batches > 1:
        word = "two batches win" if best.gain > 1 else "one batch would do as well"
        yield (
            f"At equal concurrency the rotation gives {best.gain:.2f} times what one batch of all "
            f"requests gives (G): {word}."
        )
    yield from _beside(advice)
    if advice.runner_up is not None:
        yield _over_runner_up(best, advice.runner_up)


def _of_rate(advice: Advice) -> str:
    question, best = advice.question, advice.best
    carried, asked = best.candidate.carried_rate, question.highest_rate
    groups = best.candidate.layout.num_groups
    if best.confirmed.begun < CARRIES:
        return (
            f"Simulated, only {best.confirmed.begun:.0%} of the requests began in time at "
            f"{carried:.3g} requests/s: the queue grows. Plan for less, or add devices."
        )
    if carried >= asked * (1 - 1e-9):
        most = best.candidate.most_rate
        return f"It carries {asked:.3g} requests/s; with larger batches {most:.3g} at the most."
    more = -(-asked // (carried / groups))
    devices = best.candidate.layout.num_devices // groups
    return (
        f"It carries {carried:.3g} of {asked:.3g} requests/s; no layout of these devices carries "
        f"more than {advice.most_rate:.3g}. For all of it you need {more:.0f} such services: "
        f"{more * devices:.0f} devices."
    )


def _of_legs(best: Choice) -> str:
    layout, price = best.candidate.layout, best.candidate.usual
    verify, draft = price.verify_ms, price.draft_ms
    if layout.drafter is None:
        return (
            f"A verify step takes {verify:.1f} ms. At this load no drafter of those asked is worth "
            "what it costs."
        )
    if layout.num_batches == 1:
        return (
            f"A step takes V + t: {verify:.1f} + {draft:.1f} ms, and gives {price.tokens:.2f} "
            "tokens per request."
        )
    longer = "V hides the drafts" if verify >= draft else "the drafts are the longer leg"
    return (
        f"V is {verify:.1f} ms, t is {draft:.1f} ms: {longer}. A verify step ends every "
        f"{price.step_ms:.1f} ms and gives {price.tokens:.2f} tokens per request."
    )


def _beside(advice: Advice) -> Iterator[str]:
    best = advice.best
    for name, other in (
        ("the drafter on the target's device", advice.shared),
        ("no speculation", advice.plain),
    ):
        if other is None:
            yield f"With {name} nothing fits, or keeps the SLO."
        elif other is not best:
            yield f"Over {name} it {_over(best, other)}."


def _over(best: Choice, other: Choice) -> str:
    """Compare in rate carried, and in time per token."""
    rate = best.candidate.carried_rate / other.candidate.carried_rate
    time = best.confirmed.tpot_ms_p50 / other.confirmed.tpot_ms_p50
    parts = []
    if abs(rate - 1) > _CLOSE:
        parts.append(f"carries {rate:.2f} times the rate")
    parts.append(f"takes {time:.2f} times as long per token")
    return " and ".join(parts)


def _over_runner_up(best: Choice, other: Choice) -> str:
    times = best.confirmed.tpot_ms_p50 / other.confirmed.tpot_ms_p50
    rates = best.candidate.carried_rate / other.candidate.carried_rate
    if abs(times - 1) <= _CLOSE and abs(rates - 1) <= _CLOSE:
        return "The runner-up is as good within 3 %: choose by what else you know."
    return f"Over the runner-up it {_over(best, other)}."


def commands(advice: Advice) -> Iterator[str]:
    """Say how to start one service of the best layout."""
    candidate = advice.best.candidate
    layout = candidate.layout
    yield f"minedraft verifier --model {_id(advice.question.target.name)} --tp-size {layout.tp}"
    if layout.drafter is not None:
        yield f"minedraft drafter --model {_id(layout.drafter.shape.name)}"
    yield (
        f"minedraft coordinator --num-batches {layout.num_batches} --max-batch-size "
        f"{candidate.batch_size} --num-draft-tokens {layout.k} --prefill-budget-tokens "
        f"{prefill_budget(candidate.usual)}"
    )


def _id(name: str) -> str:
    """Name a model as the hub does, if it is known."""
    return MODELS[name][0].partition("/")[2] if name in MODELS else name


def assumptions(advice: Advice) -> Iterator[str]:
    """Say what the figures rest on, the least certain first."""
    question = advice.question
    rates = [each for each in question.drafters if each.is_assumed]
    if rates:
        listed = ", ".join(f"{each.name} {each.acceptance:.2f}" for each in rates)
        yield (
            f"Acceptance is assumed: {listed} ({SOURCE}). Measure yours and give it: "
            f"--acceptance {rates[0].name}=RATE."
        )
    if any(each.costs is None for each in question.drafters) or question.target_costs is None:
        has_gpu = any(each.device.is_gpu for each in question.groups)
        launches = f", {question.launch} launches" if has_gpu else ""
        yield (
            f"Times are of a roofline{launches}: a good program comes near, another does not. "
            "Measured ones: --costs DRAFTER=FILE with --tp."
        )
        if question.launch == EAGER and has_gpu:
            yield (
                "Eager is how MineDraft runs on a GPU today, and its CUDA path is unproven "
                "(docs/gpu.md). --launch graphs shows what a tuned engine would do."
            )
    names = dict.fromkeys(each.device.name for each in question.groups)
    sources = {each.device.name: each.device.source for each in question.groups}
    for name in names:
        yield f"{name}: {sources[name]}."
    shapes = {question.target.name: None, **{each.shape.name: None for each in question.drafters}}
    known = [MODELS[name][0] for name in shapes if name in MODELS]
    if known:
        yield f"Model shapes: {', '.join(known)}."
    yield (
        f"Load: Poisson, {question.prompt_tokens} prompt and {question.output_tokens} output "
        "tokens each, no shared prefixes. A real trace: minedraft simulate --trace."
    )
