"""Steps with our kernels over steps with torch's, one thread, in turns: what the kernels are worth.

In one process both runners hold the same rows at context 200. CPU time per step, median of the
rounds' ratios. Rows x tokens: 16x1 is a decode step, 8x5 a verify step of k = 4, 1x1 one request
alone, and 4x1 and 8x1 are steps of the drafter.

    python benchmarks/step_cost.py [--dtype float32] [--only 16x1 ...] [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from loaded import Loaded
from turns import compare, cpu_ms

from minedraft.bench.machine import describe, in_words
from minedraft.hub.pairs import ensure_pair

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of step and its target in fp32."""

    role: str
    num_rows: int
    num_tokens: int
    limit: float

    @property
    def shape(self) -> str:
        """Rows x tokens."""
        return f"{self.num_rows}x{self.num_tokens}"


CASES = (
    Case("target", 16, 1, 0.60),
    Case("target", 8, 5, 0.75),
    Case("target", 1, 1, 0.45),
    Case("drafter", 4, 1, 0.45),
    Case("drafter", 8, 1, 0.55),
)


def measure(
    cases: Sequence[Case], models: dict[str, Path], dtype: str, rounds: int
) -> list[dict[str, Any]]:
    found = []
    for role in dict.fromkeys(case.role for case in cases):
        base = Loaded(models[role], dtype, kernels="torch")
        new = Loaded(models[role], dtype, kernels="c")
        for case in (case for case in cases if case.role == role):
            shape = case.num_rows, case.num_tokens
            with torch.inference_mode():
                difference = float((base.step(*shape) - new.step(*shape)).abs().max())
            result = compare(
                cpu_ms(lambda base=base, shape=shape: base.step(*shape)),
                cpu_ms(lambda new=new, shape=shape: new.step(*shape)),
                rounds=rounds if case.num_rows > 1 else 2 * rounds,
            )
            print(f"{role} {case.shape}, {dtype}: {result}; want <= {case.limit}", flush=True)
            found.append(
                {
                    "what": f"{role} {case.shape}",
                    "dtype": dtype,
                    "limit": case.limit,
                    "largest_difference_of_logits": difference,
                    **result.to_json(),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", nargs="*", help="shapes, such as 16x1")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pair = ensure_pair("smollm2")
    cases = [case for case in CASES if not args.only or case.shape in args.only]
    models = {"target": pair.target_dir, "drafter": pair.draft_dir}
    machine = describe()
    print(in_words(machine))
    report = {"machine": machine, "results": measure(cases, models, args.dtype, args.rounds)}
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
