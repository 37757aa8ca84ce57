"""One object per instruction set that the compiler knows, of the sources as they are."""

from __future__ import annotations

import platform
import shutil
import sys

import pytest

from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.cpu import NEEDS

needs_cc = pytest.mark.skipif(build.compiler() is None, reason="no C compiler here")


def fake_compiler(tmp_path, script):
    path = tmp_path / "fake-cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of two sources that a test may change."""
    copy = tmp_path / "src"
    copy.mkdir()
    for name in ("api.h", "entry.c"):
        shutil.copy(build.SOURCES / name, copy)
    monkeypatch.setattr(build, "SOURCES", copy)
    return copy


def test_every_object_has_a_rule_for_which_cpu_runs_it():
    assert {isa for isas in build.FLAGS.values() for isa in isas} == NEEDS.keys()


def test_no_flag_lets_the_compiler_change_a_sum():
    flags = {
        *build.COMMON,
        *(flag for isas in build.FLAGS.values() for f in isas.values() for flag in f),
    }
    assert "-ffp-contract=off" in flags
    assert not flags & {
        "-ffast-math",
        "-Ofast",
        "-funsafe-math-optimizations",
        "-fassociative-math",
    }


@needs_cc
def test_what_is_built_is_fresh_until_a_source_changes(sources, tmp_path):
    built = build.build(tmp_path)
    assert built
    assert all(build.is_fresh(path.stem, tmp_path) for path in built)
    times = [path.stat().st_mtime_ns for path in built]
    assert build.build(tmp_path) == built
    assert [path.stat().st_mtime_ns for path in built] == times
    (sources / "api.h").write_text((sources / "api.h").read_text() + "\n/* more */\n")
    assert not any(build.is_fresh(path.stem, tmp_path) for path in built)


def test_the_number_of_the_sources_covers_names_and_contents(sources):
    numbers = [build.abi()]
    (sources / "api.h").write_text("")
    numbers.append(build.abi())
    (sources / "other.h").write_text("")
    numbers.append(build.abi())
    (sources / "notes.txt").write_text("not a source")
    assert build.abi() == numbers[-1]
    assert len(set(numbers)) == 3


@needs_cc
def test_a_source_that_does_not_compile_says_what_the_compiler_said(sources, tmp_path):
    (sources / "broken.c").write_text("int f(void) { return nothing; }\n")
    with pytest.raises(build.CompileError, match=r"(?s)broken\.c.*nothing"):
        build.build(tmp_path)


@needs_cc
def test_a_failed_build_leaves_the_old_objects(sources, tmp_path):
    (built, *_) = build.build(tmp_path)
    before = built.read_bytes()
    (sources / "broken.c").write_text("int f(void) { return nothing; }\n")
    with pytest.raises(build.CompileError):
        build.build(tmp_path)
    assert built.read_bytes() == before
    assert not list(tmp_path.rglob(".new-*"))


@needs_cc
def test_only_what_changed_is_compiled_again(sources, tmp_path):
    isa = next(iter(build.FLAGS[platform.machine()]))
    (sources / "more.c").write_text("int more(void) { return 1; }\n")
    build.build(tmp_path, isas=[isa])
    before = set((tmp_path / "parts" / isa).iterdir())
    (sources / "more.c").write_text("int more(void) { return 2; }\n")
    build.build(tmp_path, isas=[isa])
    after = set((tmp_path / "parts" / isa).iterdir())
    # entry.c knows the number of all sources; it and what changed are new, and nothing old stays.
    assert len(before) == len(after) == 2
    assert not before & after
    (sources / "other.c").write_text("int other(void) { return 1; }\n")
    build.build(tmp_path, isas=[isa])
    kept = after & set((tmp_path / "parts" / isa).iterdir())
    assert {path.name.partition("-")[0] for path in kept} == {"more"}


@needs_cc
def test_an_instruction_set_that_the_compiler_does_not_know_is_left_out(sources, tmp_path):
    if platform.machine() != "x86_64":
        pytest.skip("this machine has one instruction set")
    script = 'for flag; do [ "$flag" = -mavx512bf16 ] && exit 1; done\nexec cc "$@"'
    old = fake_compiler(tmp_path, script)
    built = build.build(tmp_path, command=[str(old)])
    assert [path.stem for path in built] == ["avx2", "avx512"]


@needs_cc
def test_libm_is_refused(sources, tmp_path):
    (sources / "wrong.c").write_text("#include <math.h>\nfloat f(float x) { return expf(x); }\n")
    with pytest.raises(build.CompileError, match="expf"):
        build.build(tmp_path)


def test_no_compiler_builds_nothing(tmp_path):
    assert build.compiler({"PATH": str(tmp_path)}) is None
    assert build.compiler({"PATH": str(tmp_path), "CC": "gcc"}) is None


def test_cc_names_the_compiler_and_its_arguments(tmp_path):
    found = build.compiler({"PATH": "", "CC": f"{sys.executable} --target 'a b'"})
    assert found == (sys.executable, "--target", "a b")


def test_another_machine_has_no_objects(tmp_path):
    assert build.build(tmp_path, command=["false"], machine="riscv64") == []


def test_make_kernels_says_that_there_is_no_compiler(monkeypatch, capsys):
    monkeypatch.setattr(build, "compiler", lambda: None)
    assert build.main() == 0
    assert "no C compiler" in capsys.readouterr().out
