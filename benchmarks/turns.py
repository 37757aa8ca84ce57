"""Two contenders in turns, so that a busy machine slows both alike: ratios of turns, not of runs.

A contender is a call that does one turn and returns its cost. `Peer` is one in a process of its
own, which may import another checkout. Times of different runs are never compared here.

    git archive COMMIT | tar -x -C DIR    # another checkout
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    Turn = Callable[[], float]

HERE = Path(__file__).resolve().parent.parent
"""This checkout."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one contender costs over another; units are those of the turns."""

    base: float
    """Median cost of a turn."""
    new: float
    ratio: float
    """Median of the rounds' ratios, new over base."""
    quartiles: tuple[float, float]
    """Of these ratios: the first and the third."""
    num_rounds: int

    def __str__(self) -> str:
        low, high = self.quartiles
        return (
            f"{self.ratio:.3f} [{low:.3f}..{high:.3f}] = {self.new:.4g} over {self.base:.4g}, "
            f"{self.num_rounds} rounds"
        )

    def to_json(self) -> dict[str, Any]:
        """Figures by name."""
        return asdict(self)


def compare(base: Turn, new: Turn, *, rounds: int, warm_up: int = 3) -> Comparison:
    """Let both do one turn per round; who begins changes with each round.

    Args:
        base: What is compared with.
        new: What is compared.
        rounds: Rounds that count; >= 2.
        warm_up: Rounds before, which do not.
    """
    pairs = []
    for index in range(warm_up + rounds):
        if index % 2:
            second = new()
            first = base()
        else:
            first = base()
            second = new()
        pairs.append((first, second))
    pairs = pairs[warm_up:]
    ratios = [second / first for first, second in pairs]
    low, _, high = statistics.quantiles(ratios, n=4)
    return Comparison(
        base=statistics.median(first for first, _ in pairs),
        new=statistics.median(second for _, second in pairs),
        ratio=statistics.median(ratios),
        quartiles=(low, high),
        num_rounds=rounds,
    )


def cpu_ms(call: Callable[[], object]) -> Turn:
    """Make a turn of a call: its CPU time, all threads of the process together, in ms."""
    return _timed(call, time.process_time)


def wall_ms(call: Callable[[], object]) -> Turn:
    """Make a turn of a call: its wall time in ms."""
    return _timed(call, time.perf_counter)


def _timed(call: Callable[[], object], clock: Callable[[], float]) -> Turn:
    def turn() -> float:
        begin = clock()
        call()
        return (clock() - begin) * 1e3

    return turn


class Peer:
    """A contender in a process of its own; `with` starts and ends it.

    Args:
        script: Of this checkout; with `options` it must call `serve`.
        options: Its arguments.
        root: The checkout whose `minedraft` it imports.
        environment: Variables to set or change.
    """

    def __init__(
        self,
        script: str,
        *options: str,
        root: Path = HERE,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._command = [sys.executable, script, *options]
        self._root = root
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(root),
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        found = Path(self._answer()).parent.parent
        if found != self._root:
            self.__exit__()
            raise SystemExit(f"the peer for {self._root} imported {found}")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            with self._process:  # closes the pipes and waits
                self._process.kill()

    def __call__(self) -> float:
        """Have one turn done; return its cost."""
        if self._process is None or self._process.stdin is None:
            raise SystemExit("the peer does not run")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        line = "" if self._process is None else (self._process.stdout or sys.stdin).readline()
        if not line:
            raise SystemExit(f"{' '.join(self._command)}: ended, see above")
        return line.strip()


def serve(turn: Turn) -> None:
    """Be a peer: say which checkout this is, then do a turn per line of input and say its cost."""
    print(sys.modules["minedraft"].__file__, flush=True)
    for _ in sys.stdin:
        print(turn(), flush=True)
