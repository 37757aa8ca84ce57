"""The driver of gpu_check.py: whatever a check does, it ends with a verdict."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_check.py"


@pytest.fixture
def gpu_check(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script adds to it
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_one(gpu_check, monkeypatch, tmp_path):
    """Run a check whose process does what the text says; `result` and `told` are paths."""

    def run(text, timeout_s=20.0, left_s=100.0, num_gpus=0):
        child = tmp_path / "child.py"
        told = tmp_path / "told"
        child.write_text(
            "import os, subprocess, sys, time\n"
            "result = sys.argv[sys.argv.index('--result') + 1]\n"
            f"told = {str(told)!r}\n{text}\n"
        )
        monkeypatch.setattr(gpu_check, "__file__", str(child))
        check = gpu_check.Check("x", "y", timeout_s, num_gpus)
        verdict = gpu_check.run_one(check, gpu_check.Setting("cpu", 0, True), left_s)
        return verdict, told

    return run


def test_what_a_check_writes_is_its_verdict(run_one):
    verdict, _ = run_one("""open(result, "w").write('{"status": "PASS", "figures": {"a": 1}}')""")
    assert verdict == {"status": "PASS", "figures": {"a": 1}}


def test_a_check_that_dies_fails_with_the_end_of_its_output(run_one):
    verdict, _ = run_one("print('last words', flush=True); os._exit(3)")
    assert verdict["status"] == "FAIL"
    assert "exit code 3: last words" in verdict["message"]


def _lives(stat: Path) -> bool:
    try:
        return stat.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_check_that_hangs_is_ended_with_its_own_children(run_one):
    verdict, told = run_one(
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open(told, 'w').write(str(grandchild.pid))\n"
        "time.sleep(60)",
        timeout_s=1.5,
    )
    assert verdict["status"] == "FAIL"
    assert "no end after 2 s" in verdict["message"]
    pid = int(told.read_text())
    stat = Path(f"/proc/{pid}/stat")
    while _lives(stat):  # until it has died of what it was sent; the test's own timeout bounds it
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("more", "says"), [({"num_gpus": 2}, "needs 2 GPUs"), ({"left_s": 3.0}, "no time left")]
)
def test_what_cannot_run_is_skipped(run_one, more, says):
    assert run_one("os._exit(1)", **more)[0] == {"status": "SKIP", "message": says}


def test_results_are_written_after_every_check_and_a_failure_is_the_exit_code(
    gpu_check, monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("OUT", str(tmp_path))
    kinds = iter(["PASS", "SKIP", "FAIL"])
    seen = []

    def run_one(check, _setting, _left_s):
        path = tmp_path / "gpu_check.json"
        seen.append(len(json.loads(path.read_text())["results"]) if path.exists() else 0)
        return {"status": next(kinds), "message": "why", "figures": {"n": 1}}

    monkeypatch.setattr(gpu_check, "run_one", run_one)
    names = [check.name for check in gpu_check.CHECKS[:3]]
    assert gpu_check.run_all(gpu_check.Setting("cpu", 0, True), names) == 1
    assert seen == [0, 1, 2]
    assert "FAIL  " + names[2] in capsys.readouterr().out


def test_every_check_is_a_function_of_its_module(gpu_check):
    for check in gpu_check.CHECKS:
        source = (SCRIPT.parent / "gpu_checks" / f"{check.module}.py").read_text()
        assert f"\ndef {check.name}(" in source


def test_an_unknown_name_is_refused(gpu_check):
    with pytest.raises(SystemExit, match="no such check: nonsense"):
        gpu_check.run_all(gpu_check.Setting("cpu", 0, True), ["nonsense"])


def test_without_a_gpu_the_gpu_checks_are_skipped(gpu_check, monkeypatch, tmp_path):
    monkeypatch.setenv("OUT", str(tmp_path))
    names = [check.name for check in gpu_check.CHECKS if check.num_gpus]
    assert gpu_check.run_all(gpu_check.Setting("cpu", 0, True), names) == 0
    results = json.loads((tmp_path / "gpu_check.json").read_text())["results"]
    assert {result["status"] for result in results.values()} == {"SKIP"}
    assert os.environ["OUT"] == str(tmp_path)
