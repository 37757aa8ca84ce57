"""A hostile model directory ends no more than the process that names it, with one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from minedraft.errors import ModelError
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.drafter.app import run as run_drafter
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.app import run as run_verifier
from minedraft.services.verifier.config import VerifierConfig
from tests.tiny_models import make_tiny_llama


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


def broken(base, tmp_path, name):
    directory = shutil.copytree(base, tmp_path / "model")
    change, said = {**HOSTILE, **OF_WORKERS}[name]
    change(directory)
    return str(directory), said


@pytest.mark.parametrize("name", [*HOSTILE, *OF_WORKERS])
async def test_every_worker_refuses_it_in_one_line(base, tmp_path, name):
    directory, said = broken(base, tmp_path, name)
    for refused in (
        run_drafter(DrafterConfig(model=directory, listen="127.0.0.1:0")),
        run_verifier(VerifierConfig(model=directory, listen="127.0.0.1:0")),
    ):
        with pytest.raises(ModelError) as caught:
            await refused
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_coordinator_refuses_it_in_one_line(base, tmp_path, name):
    directory, said = broken(base, tmp_path, name)
    config = CoordinatorConfig(
        listen="127.0.0.1:0", verifier="127.0.0.1:1", drafters=(), tokenizer=directory
    )
    with pytest.raises(ModelError) as caught:
        await run_coordinator(config)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.multiproc
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("role", "option", "name"),
    [("coordinator", "--tokenizer", "two contents of an id"), ("verifier", "--model", "code")],
)
def test_a_process_prints_the_line_and_no_traceback(base, tmp_path, role, option, name):
    directory, said = broken(base, tmp_path, name)
    command = [sys.executable, "-m", f"minedraft.services.{role}", option, directory]
    workers = ["--verifier", "127.0.0.1:1"] if role == "coordinator" else []
    done = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", *workers],
        capture_output=True, text=True, timeout=55, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "1000"},
    )  # fmt: skip
    assert done.returncode > 0
    assert "Traceback" not in done.stderr + done.stdout
    assert said in " ".join((done.stderr + done.stdout).split())
