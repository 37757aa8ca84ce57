from __future__ import annotations

import io

from rich.console import Console

from minedraft.bench.runner import BenchOptions, run_bench
from minedraft.bench.table import lines, table
from minedraft.client import Client


async def test_the_table_has_a_column_a_mode_and_the_lines_name_the_prediction(client: Client):
    prompts = tuple(f"p{i}" for i in range(8))
    result = await run_bench(client, BenchOptions(prompts, batch=2, max_tokens=12))
    console = Console(file=io.StringIO(), width=120)
    console.print(table(result, title="T"))
    text = console.file.getvalue()
    for word in (
        "AR",
        "SD, 2M",
        "PSD",
        "tokens/s",
        "TTFT",
        "worst gap",
        "overlap efficiency",
        "bubble",
        "yes",
    ):
        assert word in text
    (steps,) = (line for line in text.splitlines() if "steps these rest on" in line)
    counts = [int(cell) for cell in steps.split("│")[2:-1]]
    assert counts == [mode.steady.num_steps for mode in result.modes.values()]
    assert min(counts) > 0
    told = "\n".join(lines(result))
    assert "PSD / SD (equal batch)" in told
    assert "1.80x predicted" in told
    assert "identical outputs: yes" in told


async def test_medians_of_few_steps_are_said_to_be_rough(client: Client):
    for max_tokens, is_rough in ((4, True), (24, False)):
        result = await run_bench(
            client, BenchOptions(("a", "b"), modes=("ar",), batch=1, max_tokens=max_tokens)
        )
        assert ("steps only" in "\n".join(lines(result))) == is_rough


async def test_a_run_without_a_steady_part_says_so(client: Client):
    result = await run_bench(client, BenchOptions(("only",), modes=("ar",), max_tokens=1))
    assert "had no steady part" in "\n".join(lines(result))
