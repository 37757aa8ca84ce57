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
    for word in ("AR", "SD, 2M", "PSD", "tokens/s", "overlap efficiency", "bubble", "yes"):
        assert word in text
    told = "\n".join(lines(result))
    assert "PSD / SD (equal batch)" in told
    assert "1.80x predicted" in told
    assert "identical outputs: yes" in told


async def test_a_run_without_a_steady_part_says_so(client: Client):
    result = await run_bench(client, BenchOptions(("only",), modes=("ar",), max_tokens=1))
    assert "had no steady part" in "\n".join(lines(result))
