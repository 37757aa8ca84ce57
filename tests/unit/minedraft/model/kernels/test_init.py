"""Where C cannot run, torch serves and the log says so once; who asks for C gets C or an error."""

from __future__ import annotations

import pytest
import torch
from structlog.testing import capture_logs

from minedraft.errors import ConfigError, KernelsError
from minedraft.model import kernels
from minedraft.model.kernels import select
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c import library
from minedraft.model.kernels.c.cpu import NEEDS, flags_here, runnable
from minedraft.model.loader import load_runner
from tests.tiny_models import make_tiny_llama

has_object = pytest.mark.skipif(
    not any(build.object_path(isa).exists() for isa in runnable(flags_here())),
    reason="no object for this CPU: no C compiler here",
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing is loaded, nothing has been said, nothing is forced."""
    monkeypatch.delenv(library.ISA_VARIABLE, raising=False)
    library._load.cache_clear()
    kernels._say_once.cache_clear()
    yield
    library._load.cache_clear()
    kernels._say_once.cache_clear()


@pytest.fixture
def no_objects(monkeypatch, tmp_path):
    """As where no compiler was."""
    monkeypatch.setattr(build, "OBJECTS", tmp_path / "none")


def wrong_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "flags_here", lambda: frozenset({"sse2"}))


def wrong_abi(monkeypatch, tmp_path):
    number = build.abi()
    monkeypatch.setattr(build, "abi", lambda: number ^ 1)


def no_object(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "OBJECTS", tmp_path / "none")
    monkeypatch.setattr(library, "flags_here", lambda: NEEDS["avx2"])


REASONS = {
    wrong_cpu: "this CPU runs none of",
    no_object: "no object for avx2",
    wrong_abi: "built of other sources",
}


@has_object
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["auto", "c"])
def test_a_cpu_with_an_object_gets_c(name, dtype, threads):
    with capture_logs() as logs:
        made = select(name, dtype, threads)
    assert made.name == f"c/{library.load().isa}"
    assert (made.dtype, made.is_invariant) == (dtype, True)
    assert logs == []


@has_object
@pytest.mark.parametrize("trouble", REASONS, ids=lambda each: each.__name__)
def test_where_c_cannot_run_torch_serves_and_the_log_says_it_once(monkeypatch, tmp_path, trouble):
    trouble(monkeypatch, tmp_path)
    with capture_logs() as logs:
        found = [select("auto", torch.float32, 1).name for _ in range(3)]
    assert found == ["torch"] * 3
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("kernels.torch", "warning")
    assert REASONS[trouble] in line["reason"]


@has_object
@pytest.mark.parametrize("trouble", REASONS, ids=lambda each: each.__name__)
def test_who_asks_for_c_by_name_hears_why_not(monkeypatch, tmp_path, trouble):
    trouble(monkeypatch, tmp_path)
    with pytest.raises(KernelsError, match=REASONS[trouble]):
        select("c", torch.float32, 1)


def test_an_instruction_set_that_is_forced_is_taken_or_refused(monkeypatch):
    monkeypatch.setenv(library.ISA_VARIABLE, "avx512-bf16")
    monkeypatch.setattr(library, "flags_here", lambda: NEEDS["avx2"])
    with pytest.raises(KernelsError, match="MINEDRAFT_KERNELS_ISA='avx512-bf16': this CPU runs"):
        select("auto", torch.float32, 1)


def test_torch_is_asked_for_by_name_and_says_nothing():
    with capture_logs() as logs:
        assert select("torch", torch.float32, 1).name == "torch"
    assert logs == []


def test_on_another_device_auto_is_torch_and_c_is_refused():
    device = torch.device("meta")
    assert select("auto", torch.float32, 1, device=device).name == "torch"
    with pytest.raises(KernelsError, match="computes on CPUs, not on meta"):
        select("c", torch.float32, 1, device=device)


@pytest.mark.parametrize("name", ["", "C", "cuda"])
def test_another_maker_is_refused(name):
    with pytest.raises(ConfigError, match=f"kernels={name!r}: want one of auto, c, torch"):
        select(name, torch.float32, 1)


def test_a_model_is_served_by_torch_where_there_is_no_object(no_objects, tmp_path):
    path = make_tiny_llama(tmp_path)
    with capture_logs() as logs:
        first, second = (load_runner(path, num_blocks=2) for _ in range(2))
    assert first.info.kernels == second.info.kernels
    assert first.info.kernels.startswith("torch, ")
    assert [line["event"] for line in logs].count("kernels.torch") == 1


@has_object
def test_a_models_kernels_are_in_its_facts(tmp_path):
    runner = load_runner(make_tiny_llama(tmp_path), num_blocks=2, kernels="c")
    assert runner.info.kernels.startswith(f"c/{library.load().isa}, ")
