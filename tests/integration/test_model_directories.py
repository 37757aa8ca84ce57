"""A hostile model directory ends no more than the process that names it, with one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.tiny_models import make_tiny_llama

MEMORY_KIB = 6 << 20
"""Address space of a process that refuses: torch alone maps some 3 GiB."""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_tiny_llama(tmp_path_factory.mktemp("base") / "llama")


def fifo(directory, name):
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)


def edit(name, **fields):
    def change(directory):
        file = directory / name
        document = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(document | fields))

    return change


HOSTILE = {
    "a FIFO for a tokenizer": (lambda d: fifo(d, "tokenizer.json"), "tokenizer.json: is a FIFO"),
    "a device for a config": (
        lambda d: ((d / "config.json").unlink(), (d / "config.json").symlink_to("/dev/zero")),
        "config.json: is a device",
    ),
    "two contents of an id": (
        edit("tokenizer_config.json", added_tokens_decoder={"7": {"content": "<x>"}}),
        "tokenizer_config.json: added_tokens_decoder.7 is 7, want 300",
    ),
    "an EOS that is no token": (
        edit("generation_config.json", eos_token_id=300),
        "generation_config.json: eos_token_id is 300, want",
    ),
}
"""Change of a directory, and what every role says of it."""
OF_WORKERS = {
    "absurd layers": (edit("config.json", num_hidden_layers=10**9), "num_hidden_layers is 10000"),
    "code": (edit("config.json", _attn_implementation="a/b"), "_attn_implementation is 'a/b'"),
    "an unknown architecture": (edit("config.json", model_type="x"), "model_type is 'x', want an"),
    "no language model": (edit("config.json", model_type="vit"), "model_type is 'vit', want a"),
    "weights cut short": (
        lambda d: os.truncate(d / "model.safetensors", 1000), "model.safetensors: length of",
    ),
}  # fmt: skip
"""As `HOSTILE`, of the roles that load weights."""


def refusal(role, option, directory) -> str:
    """What a role prints that cannot start, under a limit of memory."""
    listen = ["--listen", "127.0.0.1:0"]
    workers = ["--verifier", "127.0.0.1:1"] if role == "coordinator" else []
    command = [sys.executable, "-m", f"minedraft.services.{role}", option, str(directory)]
    done = subprocess.run(
        ["bash", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "x", *command, *listen, *workers],
        capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "1000"},
    )  # fmt: skip
    assert done.returncode not in {0, -9, -6}, done
    assert "Traceback" not in done.stderr + done.stdout
    return " ".join((done.stderr + done.stdout).split())


@pytest.mark.multiproc
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_coordinator_refuses_it_in_one_line(base, tmp_path, name):
    directory = shutil.copytree(base, tmp_path / "model")
    change, said = HOSTILE[name]
    change(directory)
    assert said in refusal("coordinator", "--tokenizer", directory)


@pytest.mark.multiproc
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [*HOSTILE, *OF_WORKERS])
def test_a_worker_refuses_it_in_one_line_before_memory_is_taken(base, tmp_path, name):
    directory = shutil.copytree(base, tmp_path / "model")
    change, said = {**HOSTILE, **OF_WORKERS}[name]
    change(directory)
    role = "verifier" if len(name) % 2 else "drafter"
    assert said in refusal(role, "--model", directory)
