"""Proves MineDraft on a GPU machine: one command, no arguments, under ten minutes. Never hangs.

python benchmarks/gpu_check.py [--short] [--device cpu] [--only NAME,NAME]

Every check runs in a process group of its own with a timeout and prints PASS, FAIL or SKIP with its
figures; what needs a GPU is skipped where there is none. All results go to gpu_check.json in $OUT,
else in ./out, after every check, so that a run that is cut off has reported what it did.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from gpu_checks.check import CHECKS, Check, Setting, SkipCheck  # noqa: E402 the path comes first

BUDGET_S = 570.0
"""For everything; what would not fit any more is skipped."""
_COUNT_GPUS = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: cuda if there is one")
    parser.add_argument("--only", default="", help="names of checks, with commas")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # the child's: which check
    parser.add_argument("--num-gpus", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        return run_here(args)
    num_gpus = 0 if args.device == "cpu" else count_gpus()
    setting = Setting(args.device or ("cuda" if num_gpus else "cpu"), num_gpus, args.short)
    return run_all(setting, [name for name in args.only.split(",") if name])


def run_all(setting: Setting, only: list[str]) -> int:
    """Run the checks one after the other; 1 if any failed."""
    unknown = set(only) - {check.name for check in CHECKS}
    if unknown:
        raise SystemExit(f"no such check: {', '.join(sorted(unknown))}")
    out = Path(os.environ.get("OUT") or "out")
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    until = time.monotonic() + BUDGET_S
    print(f"gpu_check: device {setting.device}, {setting.num_gpus} GPUs", flush=True)
    for check in CHECKS:
        if only and check.name not in only:
            continue
        started = time.monotonic()
        result = run_one(check, setting, until - started)
        result["seconds"] = round(time.monotonic() - started, 1)
        results[check.name] = result
        report(check.name, result)
        text = json.dumps({"setting": setting_dict(setting), "results": results}, indent=2)
        (out / "gpu_check.json").write_text(text + "\n")
    counts = {s: sum(r["status"] == s for r in results.values()) for s in ("PASS", "FAIL", "SKIP")}
    print(f"gpu_check: {counts}; {out / 'gpu_check.json'}", flush=True)
    return int(counts["FAIL"] > 0)


def run_one(check: Check, setting: Setting, left_s: float) -> dict[str, Any]:
    """Run one check in a child that is ended with everything it started."""
    if setting.num_gpus < check.num_gpus:
        return {"status": "SKIP", "message": f"needs {check.num_gpus} GPUs"}
    if left_s < 15:
        return {"status": "SKIP", "message": "no time left"}
    timeout_s = min(check.timeout_s, left_s)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        result = Path(scratch) / "result.json"
        command = [
            sys.executable,
            __file__,
            *("--run", check.name),
            *("--device", setting.device),
            *("--num-gpus", str(setting.num_gpus)),
            *("--result", str(result)),
            *(["--short"] if setting.is_short else []),
        ]
        log = Path(scratch) / "log"
        with log.open("wb") as file:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": scratch, "PYTHONPATH": python_path()},
                start_new_session=True,
            )
            try:
                child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return {
                    "status": "FAIL",
                    "message": f"no end after {timeout_s:.0f} s: {tail(log)}",
                }
            finally:
                with suppress(ProcessLookupError):  # it, and what it left behind
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if not result.exists():
            return {"status": "FAIL", "message": f"exit code {child.returncode}: {tail(log)}"}
        return json.loads(result.read_text())


def run_here(args: argparse.Namespace) -> int:
    """Run one check in this process and write what came of it."""
    (check,) = (check for check in CHECKS if check.name == args.run)
    outcome: dict[str, Any]
    try:
        module = importlib.import_module(f"gpu_checks.{check.module}")
        figures = getattr(module, check.name)(Setting(args.device, args.num_gpus, args.short))
        outcome = {"status": "PASS", "figures": figures}
    except SkipCheck as skip:
        outcome = {"status": "SKIP", "message": str(skip)}
    except BaseException:  # noqa: BLE001 it becomes the verdict
        outcome = {"status": "FAIL", "message": traceback.format_exc()[-3000:]}
    args.result.write_text(json.dumps(outcome, default=str))
    sys.stdout.flush()
    os._exit(0)  # whatever still runs, a stuck CUDA context too, ends here


def report(name: str, result: dict[str, Any]) -> None:
    """Print one line, and more for a failure."""
    figures = result.get("figures") or {}
    shown = "  ".join(f"{key}={value}" for key, value in figures.items())
    message = result.get("message", "")
    first = message.strip().splitlines()[-1] if message.strip() else ""
    print(
        f"{result['status']}  {name:<26} {result['seconds']:>6.1f} s  {shown or first}", flush=True
    )
    if result["status"] == "FAIL":
        print("      " + message.strip().replace("\n", "\n      "), flush=True)


def count_gpus() -> int:
    """Ask in a process of its own: the driver never touches CUDA."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _COUNT_GPUS],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return int(done.stdout.strip() or 0)
    except (subprocess.TimeoutExpired, ValueError):
        return 0


def python_path() -> str:
    """Return the repository first, then what was there."""
    mine = [str(ROOT), str(ROOT / "benchmarks")]
    return os.pathsep.join([*mine, *filter(None, [os.environ.get("PYTHONPATH")])])


def setting_dict(setting: Setting) -> dict[str, Any]:
    return {name: getattr(setting, name) for name in ("device", "num_gpus", "is_short")}


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


if __name__ == "__main__":
    sys.exit(main())
