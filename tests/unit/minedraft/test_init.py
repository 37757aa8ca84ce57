"""minedraft/__init__.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

import minedraft


def test_importing_minedraft_loads_neither_grpc_nor_torch_nor_numpy():
    code = "import minedraft, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"grpc", "torch", "numpy", "structlog"} & set(ran.stdout.split())


def test_the_clients_are_found_on_first_use():
    assert minedraft.Client.__module__.startswith("minedraft.client")
    assert minedraft.SyncClient.__module__.startswith("minedraft.client")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = minedraft.nothing_like_it
