"""What leading and deciding add to a tensor parallel step: two ranks, a core each, one run.

Each round runs the plain forward pass (both ranks know the rows, nobody is told) and the verifier's
whole step (rank 0 tells the rows, both run them, rank 0 decides), greedy and sampled, in turns, so
that a busy machine slows all of them. Figures are wall times of rank 0, medians; the promise is
that a step takes at most 1.10 of the plain forward pass. Random weights in SmolLM2-135M's shape but
for eight heads over four: its nine over three cannot be shared by two.

    python benchmarks/tp_step.py [--dtype float32] [--rounds 40] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from minedraft.model.batch import RowInput
from minedraft.model.loader import load_runner
from minedraft.model.parallel import wire
from minedraft.model.parallel.group import RankGroup, RankSpec
from minedraft.model.parallel.leader import Leader
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import OpenRow, VerifyPlan, VerifyRow
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.types import Acceptance, RowId, RowParams

if TYPE_CHECKING:
    from minedraft.model.runner import ModelRunner

LIMIT = 1.10
BLOCK = 16
WARM_UP = 4
PARAMS = {
    "greedy": RowParams(),
    "sampled": RowParams(temperature=0.8, seed=1),
    "top_p": RowParams(temperature=0.8, top_p=0.95, seed=1),
}
STEPS = ("forward", *PARAMS)


def save_model(directory: Path) -> None:
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        head_dim=64,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        # As sure of itself as a trained model: logits of a spread of 6, a few likely tokens each.
        model.get_input_embeddings().weight.mul_(6 / (0.02 * config.hidden_size**0.5))
    model.save_pretrained(directory)


def load(args: argparse.Namespace, rank: int) -> tuple[RankGroup, ModelRunner]:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    group = RankGroup(RankSpec(rank, 2, str(args.meeting / "store")))
    blocks = args.rows * -(-(args.context + args.k + 1) // BLOCK)
    runner = load_runner(
        args.meeting / "model", dtype=args.dtype, num_blocks=blocks, block_size=BLOCK, ranks=group
    )
    return group, runner


def inputs(args: argparse.Namespace) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids (context and drafts) and block table of every row."""
    rng = random.Random(0)
    tokens = [
        [rng.randrange(49152) for _ in range(args.context + args.k)] for _ in range(args.rows)
    ]
    per_row = -(-(args.context + args.k + 1) // BLOCK)
    return tokens, [list(range(i * per_row, (i + 1) * per_row)) for i in range(args.rows)]


def plain_rows(args: argparse.Namespace) -> list[RowInput]:
    tokens, tables = inputs(args)
    return [
        RowInput(row[args.context - 1 :], args.context - 1, table, args.k + 1)
        for row, table in zip(tokens, tables, strict=True)
    ]


def turns(index: int) -> tuple[str, ...]:
    """Each round begins with another kind: none always runs in the wake of the same one."""
    first = index % len(STEPS)
    return STEPS[first:] + STEPS[:first]


def follow(args: argparse.Namespace) -> None:
    """Rank 1: as the leader's rounds go."""
    group, runner = load(args, 1)
    frame = torch.zeros(wire.FRAME_WORDS, dtype=torch.int32)

    def hear() -> None:
        group.broadcast(frame)
        runner.feed(wire.decode(frame[: wire.num_words(frame)]))

    rows = plain_rows(args)
    for _ in range(len(PARAMS) * args.rows):  # every engine's prefill, one row per step
        hear()
    for index in range(args.rounds + WARM_UP):
        for step in turns(index):
            if step == "forward":
                runner.forward(rows)
            else:
                hear()


def lead(args: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Rank 0: milliseconds of every kind of step and of its decisions alone, warmed up."""
    group, runner = load(args, 0)
    leader = Leader(group, sys.exit)
    alone, rows = runner.lead, plain_rows(args)
    runner.lead = leader.lead
    engines = {name: prefilled(args, runner, params) for name, params in PARAMS.items()}
    plan, packet = verify_step(args)
    times: dict[str, list[float]] = {step: [] for step in STEPS}
    decided: dict[str, list[float]] = {name: [] for name in PARAMS}
    for index in range(args.rounds + WARM_UP):
        for step in turns(index):
            runner.lead = alone if step == "forward" else leader.lead
            begin = time.perf_counter()
            if step == "forward":
                runner.forward(rows)
            else:
                result = engines[step].step(plan, packet, plan_ns=0, drafts_ns=None)
                if index >= WARM_UP and result is not None:
                    decided[step].append(result.timing.sample_ns / 1e6)
            if index >= WARM_UP:
                times[step].append((time.perf_counter() - begin) * 1e3)
    group.close()
    return times, decided


def prefilled(args: argparse.Namespace, runner: ModelRunner, params: RowParams) -> VerifyEngine:
    engine = VerifyEngine(runner, Acceptance.COUPLED)
    tokens, tables = inputs(args)
    for i, (row, table) in enumerate(zip(tokens, tables, strict=True)):
        prompt = tuple(row[: args.context])
        opened = OpenRow(RowId(i), prompt, (), params)
        fed = VerifyRow(RowId(i), args.context, (), 0, args.context, 0, tuple(table), 0)
        plan = VerifyPlan(0, 0, 0, rows=(fed,), opens=(opened,))
        engine.step(plan, None, plan_ns=0, drafts_ns=None)
    return engine


def verify_step(args: argparse.Namespace) -> tuple[VerifyPlan, DraftPacket]:
    """A step that can be repeated: the committed length stays where it is."""
    tokens, tables = inputs(args)
    at = args.context
    planned = tuple(
        VerifyRow(RowId(i), at, (), at - 1, 1, args.k, (), len(tables[i])) for i in range(args.rows)
    )
    drafted = tuple(DraftedRow(i, at, tuple(row[at:])) for i, row in enumerate(tokens))
    return VerifyPlan(1, 0, 1, rows=planned), DraftPacket(1, 1, 0, drafted)


def report(
    args: argparse.Namespace, times: dict[str, list[float]], decided: dict[str, list[float]]
) -> dict[str, Any]:
    medians = {step: statistics.median(values) for step, values in times.items()}
    ratios = {step: medians[step] / medians["forward"] for step in STEPS[1:]}
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "machine": f"{cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "torch": torch.__version__,
        "what": f"TP 2, {args.dtype}, m={args.rows}, k={args.k}, context {args.context}",
        "rounds": args.rounds,
        "median_ms": medians,
        "decision_median_ms": {name: statistics.median(ms) for name, ms in decided.items()},
        "ratio": ratios,
        "limit": LIMIT,
        "met": {name: ratio <= LIMIT for name, ratio in ratios.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--context", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--meeting", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.meeting is not None:
        follow(args)
        return
    with tempfile.TemporaryDirectory(prefix="minedraft-tp-") as directory:
        args.meeting = Path(directory)
        save_model(args.meeting / "model")
        with subprocess.Popen([sys.executable, *sys.argv, f"--meeting={directory}"]) as other:
            try:
                times, decided = lead(args)
                other.wait(timeout=30)
            finally:
                other.kill()
    found = report(args, times, decided)
    print(json.dumps(found, indent=2))
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
