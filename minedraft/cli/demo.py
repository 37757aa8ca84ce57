"""`minedraft demo`: fetches models, serves them, measures, and draws the rotation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import typer

import minedraft
from minedraft.api import Completion
from minedraft.bench.modes import MODES, Cores
from minedraft.bench.prompts import load_prompts
from minedraft.bench.result import BenchResult
from minedraft.bench.runner import BenchOptions, calibrate, run_bench
from minedraft.bench.sizing import Size, choose, predict
from minedraft.cli.answers import AnswerBoard
from minedraft.cli.bench import alone, bars, show, write_json
from minedraft.cli.cluster import ClusterSpec
from minedraft.cli.commands import fail
from minedraft.cli.generate import summary
from minedraft.cli.options import DTYPE_HELP, KERNELS_HELP, out
from minedraft.cli.serve import check_arithmetic, started
from minedraft.cli.timeline import write_picture, write_trace
from minedraft.client import Client
from minedraft.cpu import choose_dtype_here, remark_here
from minedraft.errors import ConfigError
from minedraft.timeline.window import full_steps
from minedraft.types import Mode


@dataclass(frozen=True, slots=True)
class Demo:
    """Settings of one demo."""

    dtype: str
    """Unless another one is asked for."""
    prompts: str
    """Name of the file under data/."""
    batch: int
    k: int
    sizes: tuple[Size, ...]
    """Sizes of a measurement, smallest first; the machine's speed decides which one is taken."""
    budget_s: float
    """Longest time for all measurements together."""
    max_prompt_chars: int
    answer_tokens: int
    """Most output tokens per streamed answer."""
    synthetic_acceptance: float | None
    num_blocks: int


_CALIBRATION_TOKENS: Final = 6


def _sizes(*sizes: tuple[int, int]) -> tuple[Size, ...]:
    return tuple(Size(num_prompts, max_tokens) for num_prompts, max_tokens in sizes)


DEMOS: Final = MappingProxyType(
    {
        "smollm2": Demo(
            dtype="float32",
            prompts="spec_bench.jsonl",
            batch=4,
            k=3,
            sizes=_sizes((8, 28), (8, 32), (8, 40), (8, 48), (16, 48), (24, 48)),
            budget_s=56.0,
            max_prompt_chars=200,
            answer_tokens=80,
            synthetic_acceptance=0.8,
            num_blocks=512,
        ),
        "coder": Demo(
            dtype="auto",
            prompts="humaneval.jsonl",
            batch=4,
            k=4,
            sizes=_sizes((8, 24), (8, 32), (8, 48), (8, 64), (16, 64)),
            budget_s=420.0,
            max_prompt_chars=900,
            answer_tokens=160,
            synthetic_acceptance=None,
            num_blocks=512,
        ),
    }
)
_NUM_ANSWERS = 4
_PICTURE_STEPS = 14


def demo(
    pair: Annotated[str, typer.Argument(help="Name of the pair: smollm2 or coder.")] = "smollm2",
    *,
    prompts: Annotated[
        Path | None, typer.Option(help="Other prompts, JSON Lines. Default: from data/.")
    ] = None,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Directory for picture, trace and figures.")
    ] = Path("out"),
    dtype: Annotated[
        str, typer.Option(help=f"{DTYPE_HELP} Default: float32 for smollm2, auto for coder.")
    ] = "",
    kernels: Annotated[str, typer.Option(help=KERNELS_HELP)] = "auto",
) -> None:
    """Fetch a pair of models, serve them, stream answers, measure AR, SD and PSD.

    AR is measured on the verifier's cores and on the cores of both workers.
    """
    settings = DEMOS.get(pair)
    if settings is None:
        raise ConfigError(f"pair={pair!r}: want one of {', '.join(DEMOS)}")
    dtype = dtype or settings.dtype
    check_arithmetic(dtype, kernels)
    if said := remark_here(dtype):
        out.print(said, soft_wrap=True)
    settings = replace(settings, dtype=choose_dtype_here(dtype)[0])
    path = prompts or data_file(settings.prompts)
    most = settings.sizes[-1].num_prompts
    texts = load_prompts(path, limit=most, max_chars=settings.max_prompt_chars)
    begin = time.monotonic()
    out.rule("1. models", align="left")
    from minedraft.hub.pairs import ensure_pair

    found = ensure_pair(pair)
    out.print(f"target {found.target_dir}\ndraft  {found.draft_dir}", soft_wrap=True)
    spec = ClusterSpec(
        target=str(found.target_dir),
        draft=str(found.draft_dir),
        mode=Mode(2, settings.batch, settings.k),
        listen="127.0.0.1:0",
        dtype=settings.dtype,
        kernels=kernels,
        # As long as no request carries a reference, it drafts with its model like any other.
        drafter_kind="model" if settings.synthetic_acceptance is None else "synthetic",
        num_blocks=settings.num_blocks,
    )
    asyncio.run(_demo(pair, settings, spec, texts, out_dir / pair))
    out.print(f"done in {time.monotonic() - begin:.0f} s")


def data_file(name: str) -> Path:
    """Find a file under data/ of the working directory or of the checkout.

    Raises:
        ConfigError: it is in neither.
    """
    places = (Path("data"), Path(minedraft.__file__).resolve().parents[1] / "data")
    for place in places:
        if (place / name).is_file():
            return place / name
    raise ConfigError(f"data/{name} is not here: run it from a checkout, or give --prompts FILE")


async def _demo(
    pair: str, settings: Demo, spec: ClusterSpec, texts: tuple[str, ...], out_dir: Path
) -> None:
    out.rule("2. coordinator, drafter and verifier, a process each", align="left")
    async with started(spec) as cluster, await Client.connect(cluster.address) as client:
        verifier, drafter = spec.worker_cpus()
        out.print(f"verifier on core {verifier or 'any'}, drafter on core {drafter or 'any'}")
        out.rule("3. answers, streamed in parallel", align="left")
        await _stream_answers(client, spread(texts, _NUM_ANSWERS), settings)
        out.rule("4. AR, SD and PSD with the same prompts", align="left")
        out.print("and the target alone on the cores of both, for AR on all cores:")
        async with alone(spec) as all_cores:
            options = await _sized(client, all_cores, settings, texts)
            options = replace(options, cores=Cores(verifier, drafter))
            title = (
                f"{pair}, {settings.dtype}, greedy, {len(options.prompts)} prompts x "
                f"{options.max_tokens}"
            )
            with bars(out) as progress:
                measured = await run_bench(client, options, all_cores=all_cores, progress=progress)
        show(measured, out, title=title)
        write_json(out_dir / "bench.json", measured)
        if settings.synthetic_acceptance is not None:
            synthetic = await _synthetic(client, options, settings.synthetic_acceptance, measured)
            show(synthetic, out, title=title)
            write_json(out_dir / "bench-synthetic.json", synthetic)
    _draw(measured, spec, out_dir)
    if settings.dtype == "float32" and not measured.identical_outputs:
        fail("outputs differ between modes, which must not happen in float32")


def spread(texts: Sequence[str], most: int) -> tuple[str, ...]:
    """Pick at most `most` different texts, evenly spaced."""
    different = tuple(dict.fromkeys(texts))
    num = min(most, len(different))
    return tuple(different[i * len(different) // num] for i in range(num))


async def _stream_answers(client: Client, texts: Sequence[str], settings: Demo) -> None:
    with AnswerBoard(texts, out) as board:
        async with asyncio.TaskGroup() as group:
            for i, text in enumerate(texts):
                group.create_task(_answer(client, board, i, text, settings), name=f"answer-{i}")


async def _answer(
    client: Client, board: AnswerBoard, index: int, text: str, settings: Demo
) -> Completion:
    start = time.perf_counter()
    stream = client.stream(
        messages=[{"role": "user", "content": text}],
        temperature=0.0,
        max_tokens=settings.answer_tokens,
    )
    async for delta in stream:
        board.push(index, delta.text)
    completion = stream.completion
    board.finish(index, summary(completion, time.perf_counter() - start))
    return completion


async def _sized(
    client: Client, all_cores: Client, settings: Demo, texts: Sequence[str]
) -> BenchOptions:
    """Run every mode for a moment, then choose how much to measure."""
    options = BenchOptions(
        prompts=tuple(texts),
        modes=MODES,
        batch=settings.batch,
        num_draft_tokens=settings.k,
        warmup_tokens=0,
    )
    with bars(out) as progress:
        speeds = await calibrate(
            client,
            options,
            num_tokens=_CALIBRATION_TOKENS,
            all_cores=all_cores,
            progress=progress,
        )
    made = list(speeds.values())
    if settings.synthetic_acceptance is not None:  # measured once more, all but ar
        made += [speed for name, speed in speeds.items() if not name.startswith("ar")]
    size = choose(settings.sizes, made, settings.budget_s)
    out.print(
        f"{size.num_prompts} prompts x {size.max_tokens} tokens in every mode, about "
        f"{predict(made, size):.0f} s at this machine's speed",
        soft_wrap=True,
    )
    every = len(texts) / size.num_prompts
    chosen = tuple(texts[int(i * every)] for i in range(size.num_prompts))
    return replace(options, prompts=chosen, max_tokens=size.max_tokens)


async def _synthetic(
    client: Client, options: BenchOptions, acceptance: float, measured: BenchResult
) -> BenchResult:
    """Measure SD and PSD again; AR has no drafts and keeps its figures."""
    out.rule(f"5. the same with a SYNTHETIC acceptance of {acceptance:g}", align="left")
    out.print(
        "The drafter does the same work, but proposes this share of its tokens right, to show "
        "the timing of a pair that fits better than this small one.",
        soft_wrap=True,
    )
    again = replace(
        options,
        modes=("sd", "psd"),
        synthetic_acceptance=acceptance,
        reference=measured.modes["ar"].outputs,
    )
    with bars(out) as progress:
        result = await run_bench(client, again, progress=progress)
    plain = {name: mode for name, mode in measured.modes.items() if name.startswith("ar")}
    return replace(result, modes={**plain, **result.modes})


def _draw(measured: BenchResult, spec: ClusterSpec, out_dir: Path) -> None:
    psd = measured.modes["psd"]
    shown = full_steps(psd.spans, _PICTURE_STEPS, num_rows=psd.steady.num_rows)
    names = f"{Path(spec.target).name} with {Path(spec.draft).name}, {spec.dtype}"
    write_picture(out_dir / "rotation.svg", shown, psd.measurement.mode, subtitle=names)
    write_trace(out_dir / "rotation.trace.json", psd.spans)
    out.rule("what this leaves", align="left")
    out.print(f"picture: {out_dir / 'rotation.svg'}", soft_wrap=True)
    out.print(
        f"trace:   {out_dir / 'rotation.trace.json'} (open it in ui.perfetto.dev)", soft_wrap=True
    )
    out.print(f"figures: {out_dir}/bench*.json", soft_wrap=True)
    out.print(f"requests that agree in all modes: {measured.agreement:.0%}")
    out.print(f"identical outputs: {'yes' if measured.identical_outputs else 'no'}")
