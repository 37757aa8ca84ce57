"""The loader takes the best object for the CPU, and refuses what would compute nonsense."""

from __future__ import annotations

import _ctypes
import ctypes
import shutil

import pytest

from minedraft.errors import KernelsError, StateError
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c import library
from minedraft.model.kernels.c.cpu import NEEDS, flags_here, runnable

HERE = runnable(flags_here())


@pytest.fixture(autouse=True)
def not_remembered():
    library._load.cache_clear()
    yield
    library._load.cache_clear()


@pytest.fixture
def objects(tmp_path, monkeypatch):
    """A folder of objects that a test may spoil."""
    found = [build.object_path(isa) for isa in HERE if build.object_path(isa).exists()]
    if not found:
        pytest.skip("no object for this CPU: no C compiler here")
    for path in found:
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(build, "OBJECTS", tmp_path)
    return tmp_path


def cpu_with(monkeypatch, *isas):
    flags = frozenset().union(*(NEEDS[isa] for isa in isas))
    monkeypatch.setattr(library, "flags_here", lambda: flags)


def test_the_best_object_that_the_cpu_runs_is_taken(objects, monkeypatch):
    monkeypatch.delenv(library.ISA_VARIABLE, raising=False)
    best = next(isa for isa in HERE if (objects / f"{isa}.so").exists())
    assert library.load().isa == best


def test_the_variable_forces_an_object(objects, monkeypatch):
    least = [isa for isa in HERE if (objects / f"{isa}.so").exists()][-1]
    monkeypatch.setenv(library.ISA_VARIABLE, least)
    assert library.load().isa == least


def test_an_object_loads_once_per_process(objects):
    assert library.load() is library.load()


@pytest.mark.parametrize("asked", ["sse2", "AVX2", "../avx2"])
def test_a_name_that_is_no_instruction_set_is_refused(asked):
    with pytest.raises(KernelsError, match=r"MINEDRAFT_KERNELS_ISA='.*': want one of avx512-amx,"):
        library.load(asked)


def test_an_object_that_the_cpu_cannot_run_is_not_loaded(objects, monkeypatch):
    cpu_with(monkeypatch, "avx2")
    with pytest.raises(KernelsError, match="'avx512': this CPU runs avx2"):
        library.load("avx512")


def test_a_cpu_without_any_of_the_sets_says_so(objects, monkeypatch):
    cpu_with(monkeypatch)
    with pytest.raises(KernelsError, match="this CPU runs none of avx512-amx"):
        library.load("")


def test_where_the_best_object_is_missing_the_next_one_serves(objects, monkeypatch):
    there = [isa for isa in HERE if (objects / f"{isa}.so").exists()]
    if len(there) < 2:
        pytest.skip("this CPU has one object only")
    (objects / f"{there[0]}.so").unlink()
    assert library.load("").isa == there[1]


def test_no_object_names_the_folder_and_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "OBJECTS", tmp_path)
    cpu_with(monkeypatch, "avx2")
    with pytest.raises(KernelsError, match=rf"no object for avx2 in {tmp_path}: run make kernels"):
        library.load("")


def test_an_object_of_other_sources_is_refused(objects, monkeypatch):
    number = build.abi()
    monkeypatch.setattr(build, "abi", lambda: number ^ 1)
    with pytest.raises(KernelsError, match=rf"ABI {number:08x}, want {number ^ 1:08x}"):
        library.load()


def test_an_object_under_another_name_is_refused(objects):
    isas = [isa for isa in HERE if (objects / f"{isa}.so").exists()]
    if len(isas) < 2:
        pytest.skip("this CPU has one object only")
    shutil.copy(objects / f"{isas[-1]}.so", objects / "renamed.so")
    with pytest.raises(KernelsError, match=f"built for {isas[-1]}, want {isas[0]}"):
        library.Library(objects / "renamed.so", isas[0])


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n"])
def test_a_file_that_is_no_object_is_refused(tmp_path, content):
    (tmp_path / "avx2.so").write_bytes(content)
    with pytest.raises(KernelsError, match=r"avx2\.so: "):
        library.Library(tmp_path / "avx2.so", "avx2")


def test_an_object_without_our_functions_is_refused(tmp_path):
    other = tmp_path / "avx2.so"
    shutil.copy(_ctypes.__file__, other)
    with pytest.raises(KernelsError, match="md_abi"):
        library.Library(other, "avx2")


def test_an_error_number_becomes_an_exception(objects):
    strlen_like = library.load().function("md_pool_threads", ctypes.c_void_p)
    with pytest.raises(StateError, match="md_pool_threads: bad argument"):
        strlen_like(None)  # answers 1: the number of threads, here taken for an error
