"""Who may import whom: the contracts of pyproject.toml, and what a fresh process loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT


def test_the_import_contracts_of_pyproject_hold():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    ran = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


@pytest.mark.parametrize(
    "module",
    [
        "minedraft.cli.main",
        "minedraft.client",
        "minedraft.services.coordinator.app",
        "minedraft.services.gateway.app",
        "minedraft.transport.server",
    ],
)
def test_the_core_install_suffices_for(module):
    """No module of the worker extra is loaded, not even by a library."""
    code = f"import {module}, sys; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert not {"gguf", "safetensors", "torch", "transformers"} & set(ran.stdout.split())
