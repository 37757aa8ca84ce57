"""`minedraft plan`: what target, drafter, k, batches and drafters would give, before buying."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from minedraft.capacity.acceptance import assumed, given
from minedraft.capacity.advice import Advice, advise
from minedraft.capacity.device import Device, device_of, groups_of
from minedraft.capacity.figures import column, columns, to_json
from minedraft.capacity.known_models import model_of
from minedraft.capacity.layout import TPS
from minedraft.capacity.model_shape import ModelShape
from minedraft.capacity.question import (
    MAX_CONCURRENCY,
    MAX_DRAFTERS,
    MAX_TOKENS,
    Drafter,
    Question,
    rates_of,
    slo_of,
)
from minedraft.capacity.reasons import assumptions, commands, layout_in_words, reasons
from minedraft.capacity.roofline import EAGER
from minedraft.capacity.words import short
from minedraft.cli.console import cell
from minedraft.cli.options import err, out
from minedraft.cli.simulate import write_json
from minedraft.errors import ConfigError
from minedraft.sim.costs_file import read_costs
from minedraft.sim.step_costs import StepCosts

_MOST_S = 40.0
"""After this no further layout is simulated; one takes some seconds on a busy machine."""


def plan(
    target: Annotated[
        str, typer.Option(help="A known model, or the path of a config.json; :fp8 or :int4 after.")
    ],
    gpus: Annotated[str, typer.Option(help="Devices: 5xH100, 4xH100+1xL40S, 2xEPYC.")],
    drafters: Annotated[
        str, typer.Option(help="Models that may draft, with commas: 0.6B,1.7B. None: plain only.")
    ] = "",
    rate: Annotated[
        str, typer.Option(help="Requests per second, or a range: 2..40.")
    ] = "1",
    slo: Annotated[
        str, typer.Option(help="What 95 % must keep, in ms: tpot=40, or tpot=40,ttft=1000.")
    ] = "",
    acceptance: Annotated[
        list[str] | None,
        typer.Option(help="Measured acceptance rates: 0.6B=0.62. Without: assumed by size."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures here.")
    ] = None,
    prompt_tokens: Annotated[
        int, typer.Option(min=1, max=MAX_TOKENS, help="Tokens per prompt.")
    ] = 512,
    output_tokens: Annotated[
        int, typer.Option(min=2, max=MAX_TOKENS, help="Output tokens per request.")
    ] = 256,
    context: Annotated[
        int,
        typer.Option(min=0, max=MAX_TOKENS, help="Tokens to hold per request. 0: prompt, output."),
    ] = 0,
    concurrency: Annotated[
        int, typer.Option(min=1, max=MAX_CONCURRENCY, help="Requests that must fit at once.")
    ] = 1,
    tp: Annotated[
        int | None, typer.Option(help="Devices that share the target. Default: the best number.")
    ] = None,
    launch: Annotated[
        str, typer.Option(help="How kernels are launched on a GPU: eager or graphs.")
    ] = EAGER,
    costs: Annotated[
        list[str] | None,
        typer.Option(help="DRAFTER=FILE: measured costs of the pair, as a cost cache has them."),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(help="Another device: NAME=MEMORY_GB,BANDWIDTH_GB_S,TFLOPS[,LINK_GB_S]."),
    ] = None,
    hop_ms: Annotated[
        float, typer.Option(min=0, max=1e3, help="A message between services.")
    ] = 0.3,
) -> None:  # fmt: skip
    """Plan before buying: which drafter, k and batches on which devices. No models, no GPU."""
    if tp is not None and tp not in TPS:
        raise ConfigError(f"tp={tp}: want one of {', '.join(map(str, TPS))}")
    shape = model_of(target)
    measured = _costs(costs or (), tp)
    found = _drafters(drafters, shape, acceptance or (), measured)
    low, high = rates_of(rate)
    question = Question(
        target=shape,
        drafters=found,
        groups=groups_of(gpus, _devices(device or ())),
        lowest_rate=low,
        highest_rate=high,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        context=context,
        concurrency=concurrency,
        slo=slo_of(slo),
        launch=launch,
        hop_ms=hop_ms,
        tp=tp,
        target_costs=next(iter(measured.values()), None),
    )
    deadline = time.monotonic() + _MOST_S
    with _bar() as told:
        advice = advise(question, told, lambda: time.monotonic() < deadline)
    _show(advice)
    if json_file is not None:
        write_json(json_file, to_json(advice))


def _devices(texts: Sequence[str]) -> Mapping[str, Device]:
    return {each.name: each for each in map(device_of, texts)}


def _costs(texts: Sequence[str], tp: int | None) -> dict[str, StepCosts]:
    """Read measured costs, by drafter."""
    if texts and tp is None:
        raise ConfigError("costs: give --tp too, the devices that shared the target then")
    found: dict[str, StepCosts] = {}
    for text in texts[: MAX_DRAFTERS + 1]:
        name, equals, path = text.partition("=")
        if not equals:
            raise ConfigError(f"costs={short(text)}: want DRAFTER=FILE")
        found[name] = read_costs(Path(path))
    return found


def _drafters(
    text: str, target: ModelShape, rates: Sequence[str], costs: Mapping[str, StepCosts]
) -> tuple[Drafter, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > MAX_DRAFTERS:
        raise ConfigError(f"drafters: want at most {MAX_DRAFTERS}, not {len(names)}")
    known = given(rates, names)
    unknown = [name for name in costs if name not in names]
    if unknown:
        raise ConfigError(f"costs={short(unknown[0])}: is none of the drafters")
    found = []
    for name in dict.fromkeys(names):
        shape = model_of(name, target.name)
        rate = known.get(name)
        found.append(
            Drafter(
                name,
                shape,
                assumed(shape, target) if rate is None else rate,
                rate is None,
                costs.get(name),
            )
        )
    return tuple(found)


@contextmanager
def _bar() -> Iterator[Any]:
    """Show how much is done; without a terminal, nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=err, disable=not err.is_terminal) as bars:
        task = bars.add_task("pricing, then simulating", total=1.0)
        yield lambda share: bars.update(task, completed=share)


def _show(advice: Advice) -> None:
    question = advice.question
    low, high = question.lowest_rate, question.highest_rate
    rates = f"{high:g}" if low == high else f"{low:g}..{high:g}"
    out.print(
        f"{question.target.name} ({question.target.num_params / 1e9:.1f} B, "
        f"{question.target.weights}) on {_devices_in_words(question)}, {rates} requests/s of "
        f"{question.prompt_tokens} + {question.output_tokens} tokens\n"
    )
    out.print(f"Recommended: {layout_in_words(advice.best)}", soft_wrap=True)
    if advice.runner_up is not None:
        out.print(f"Runner-up:   {layout_in_words(advice.runner_up)}", soft_wrap=True)
    out.print("")
    out.print(_table(advice))
    out.print("\nWhy")
    for sentence in reasons(advice):
        out.print(f"* {sentence}", soft_wrap=True)
    out.print("\nTo run one service of it")
    for command in commands(advice):
        out.print(f"  {command}", soft_wrap=True)
    out.print(
        f"\nWhat this rests on ({advice.num_priced} layouts, {advice.num_confirmed} simulated)"
    )
    for sentence in assumptions(advice):
        out.print(f"* {sentence}", soft_wrap=True)


def _devices_in_words(question: Question) -> str:
    return " + ".join(f"{each.count} x {each.device.name}" for each in question.groups)


def _table(advice: Advice) -> Table:
    choices = columns(advice)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in choices:
        table.add_column(name, justify="right")
    cells = [column(choice, advice.question) for choice in choices.values()]
    for label in cells[0]:
        table.add_row(label, *(cell(each[label]) for each in cells))
    return table
