"""Writes the tables of documents from the JSON of `make bench`, so that no figure is typed by hand.

A table stands between two comments; those whose JSON is not there stay as they are:

    <!-- step_cost: drawn by benchmarks/tables.py -->
    <!-- end -->

    python benchmarks/tables.py [DOCUMENT ...]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from run_all import JOBS, OUT
from turns import HERE

from minedraft.bench.machine import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

DOCUMENTS = ("docs/performance.md", "docs/results.md", "README.md")
PLACE = re.compile(
    r"(<!-- (?P<name>\w+): drawn by benchmarks/tables\.py -->\n).*?(<!-- end -->)", re.DOTALL
)
Report = dict[str, Any]


def row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def head(*cells: str) -> Iterator[str]:
    yield row(*cells)
    yield f"|{'---|' * len(cells)}"


def of_lines(name: str, report: Report) -> Iterator[str]:
    """Write the lines of `make bench` that rest on one report."""
    yield from head("what", "figure", "target", "met")
    for line in JOBS[name].lines(report):
        sign = "<=" if line.at_most else ">="
        verdict = "yes" if line.is_met else "**no**"
        text = f"{line.text} ({line.detail})" if line.detail else line.text
        yield row(text, f"{line.figure:.3g}", f"{sign} {line.target:g}", verdict)


def of_profile(report: Report) -> Iterator[str]:
    """Write where the time of each shape of step goes."""
    shapes = report["steps"]
    yield from head("share of CPU time", *shapes)
    parts = dict.fromkeys(part for found in shapes.values() for part in found if part != "ms")
    for part in parts:
        yield row(part, *(f"{found.get(part, 0):.0%}" for found in shapes.values()))
    yield row("the step, ms", *(f"{found['ms']:.1f}" for found in shapes.values()))
    read, flop = report["roofs"]["read_gb_per_s"], report["roofs"]["fp32_gflop_per_s"]
    yield ""
    yield f"One core reads {read:.1f} GB/s and multiplies {flop:.0f} GFLOP/s in fp32 (torch)."


def of_coder(report: Report) -> Iterator[str]:
    """Write what the same cores make of the coder pair, by mode and peer."""
    names = list(dict.fromkeys(n for found in report["running"].values()
                               for n in found["tokens_per_s"]))  # fmt: skip
    titles = {"ar_all": "AR on all cores", "psd": "PSD", "vllm plain": "vLLM, plain",
              "vllm draft_model": "vLLM, `draft_model`"}  # fmt: skip
    yield from head("tokens/s of the whole run", *(titles.get(name, name) for name in names),
                    "PSD over AR on all cores")  # fmt: skip
    for running, found in report["running"].items():
        speeds = (f"{found['tokens_per_s'].get(name, 0):.1f}" for name in names)
        yield row(f"{running} running", *speeds, f"{found['psd_over_ar_all']:.2f}")
    yield ""
    yield from head("steady part", "V, ms", "t, ms", "step, ms", "tokens/s", "acceptance length")
    for running, found in report["running"].items():
        for name, mode in found["bench"]["modes"].items():
            shape = f"{mode['num_batches']} x {mode['max_batch_size']}"
            yield row(
                f"{running} running, {name}, {shape}, cores {mode['cores']}",
                f"{mode['verify_ms_p50']:.0f}", f"{mode['draft_ms_p50']:.0f}",
                f"{mode['step_ms_p50']:.0f}", f"{mode['tokens_per_s']:.1f}",
                f"{mode['mean_acceptance_length']:.2f}" if mode["num_draft_tokens"] else "-",
            )  # fmt: skip


def of_sched(report: Report) -> Iterator[str]:
    """Write every line of `make bench-sched`, and what was not measured."""
    yield from head("what", "figure", "target", "met")
    for line in report["lines"]:
        sign = "<=" if line["at_most"] else ">="
        text = f"{line['text']} ({line['detail']})" if line["detail"] else line["text"]
        verdict = "yes" if line["ok"] else "**no**"
        yield row(text, f"{line['figure']:.3g}", f"{sign} {line['target']:g}", verdict)
    for text in report["raw"]["missing"]:
        yield row(text, "-", "-", "not measured")


def of_sched_curve(report: Report) -> Iterator[str]:
    """Write tokens/s by concurrency and shape."""
    for pair, speeds in report["raw"]["curves"].items():
        names = list(next(iter(speeds.values())))
        yield from head(f"{pair}, tokens/s", *names)
        for concurrency, found in speeds.items():
            yield row(f"{concurrency} running", *(f"{found[name]:.0f}" for name in names))
        yield ""


def of_paper_tables(report: Report) -> Iterator[str]:
    """Write MineDraft's figures beside ours: one card, and from where to where the others go."""
    yield from head("per cent over SD", "text", "MineDraft", "ours, equal batch",
                    "ours, equal concurrency", "ours, per GPU")  # fmt: skip
    for name, (text, theirs) in report["theirs"].items():
        cells = []
        for key in ("batch", "concurrency", "gpu"):
            found = [rows[name][key] for rows in report["ours"].values() if key in rows[name]]
            low, high = (f"{each:+.0f}" for each in (min(found, default=0), max(found, default=0)))
            cells.append("-" if not found else low if low == high else f"{low} to {high}")
        yield row(name, text, f"{theirs:+.1f}", *cells)


def of_ablations(report: Report) -> Iterator[str]:
    """Write the ablations: by drafter and k, by m, by n."""
    drafters = report["drafters"]
    ks = list(next(iter(drafters.values())))
    yield from head("PSD over SD, equal batch / equal concurrency", *(f"k = {k}" for k in ks))
    for name, found in drafters.items():
        yield row(name, *(f"{at['psd'] / at['sd']:.2f} / {at['psd'] / at['sd_2m']:.2f}"
                          for at in found.values()))  # fmt: skip
    yield ""
    yield from head(f"{report['pair']}, best k", *(f"m = {m}" for m in report["m"]))
    yield row("equal batch", *(f"{at['batch']:.2f}" for at in report["m"].values()))
    yield row("equal concurrency", *(f"{at['concurrency']:.2f}" for at in report["m"].values()))
    yield ""
    yield from head("samples per prompt, equal batch", *(f"n = {n}" for n in report["n"]))
    yield row("PSD over SD", *(f"{found:.2f}" for found in report["n"].values()))


def of_theory(report: Report) -> Iterator[str]:
    """Write the computed ratios."""
    yield from head("alpha V", *report["computed"])
    yield row("T_SD / T_PSD", *(f"{found:.3f}" for found in report["computed"].values()))


WRITERS: dict[str, Callable[[Report], Iterator[str]]] = {
    "step_profile": of_profile,
    "coder": of_coder,
    "sched": of_sched,
    "sched_curve": of_sched_curve,
    "paper_tables": of_paper_tables,
    "ablations": of_ablations,
    "theory": of_theory,
}
PATHS = {
    "sched": "sched/all.json",
    "sched_curve": "sched/all.json",
    "paper_tables": "results/paper_tables.json",
    "ablations": "results/ablations.json",
    "theory": "results/theory.json",
}
"""Reports that are not called as their table."""


def table(name: str, path: Path) -> str:
    """Write one table, with its machine, commit and day above it."""
    report = json.loads(path.read_text(encoding="utf-8"))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 whoever runs this has git
        cwd=HERE, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    day = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).date()
    machine = f"{in_words(report['machine'])}; " if "machine" in report else ""
    write = WRITERS.get(name)
    lines = write(report) if write is not None else of_lines(name, report)
    return "\n".join([f"{machine}{commit}, {day}, `{name}`:", "", *lines, ""])


def redrawn(text: str, directory: Path) -> str:
    """Replace the tables of a document whose JSON is there."""

    def replace(found: re.Match[str]) -> str:
        path = directory / PATHS.get(found["name"], f"{found['name']}.json")
        if found["name"] not in {*JOBS, *WRITERS} or not path.exists():
            return found[0]
        return f"{found[1]}{table(found['name'], path)}{found[3]}"

    return PLACE.sub(replace, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("documents", nargs="*", default=DOCUMENTS)
    redraw(parser.parse_args().documents)


def redraw(documents: Iterable[str]) -> None:
    """Write the tables of documents anew."""
    for name in documents:
        document = HERE / name
        text = document.read_text(encoding="utf-8")
        new = redrawn(text, OUT)
        if new != text:
            document.write_text(new, encoding="utf-8")
            print(f"{name}: redrawn")


if __name__ == "__main__":
    main()
