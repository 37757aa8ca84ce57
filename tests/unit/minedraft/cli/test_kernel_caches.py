from __future__ import annotations

import os

import pytest

from minedraft.cli import kernel_caches
from minedraft.errors import ConfigError

NAMES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


@pytest.mark.parametrize("given", [None, "7"])
def test_the_caches_are_bounded_unless_somebody_has_said_how(monkeypatch, given):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is put back whatever it was
        monkeypatch.delenv(name)
    if given is not None:
        monkeypatch.setenv(NAMES[0], given)
    kernel_caches.bound()
    assert [os.environ[name] for name in NAMES] == [given or "128", "128"]


@pytest.mark.parametrize("role", ["drafter", "verifier"])
def test_a_role_bounds_them_before_it_loads_anything(minedraft, monkeypatch, role):
    def bound():
        raise ConfigError("bounded first")

    monkeypatch.setattr(kernel_caches, "bound", bound)
    result = minedraft(role, "--model", "/no/such/model")
    assert result.exit_code == 1
    assert "bounded first" in result.stderr
