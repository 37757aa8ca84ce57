from __future__ import annotations

import pytest

from minedraft.errors import PermissionDeniedError
from minedraft.fingerprint import tokenizer_fingerprint
from minedraft.services.drafter import model_source
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.drafter.model_source import ModelSource
from tests.tiny_tokenizers import byte_level, write


@pytest.fixture
def loads(monkeypatch) -> list[tuple[str, dict]]:
    """What was loaded, and how."""
    found: list[tuple[str, dict]] = []
    monkeypatch.setattr(
        model_source, "load_runner", lambda model, **options: found.append((model, options))
    )
    return found


@pytest.fixture
def models(tmp_path):
    for name in ("first", "second"):
        write(byte_level(), tmp_path / "models" / name)
    write(byte_level(), tmp_path / "elsewhere")
    return tmp_path / "models"


def test_the_first_model_is_the_operators_wherever_it_is(loads, models):
    config = DrafterConfig(str(models / "first"), num_blocks=7, block_size=8, dtype="bfloat16")
    ModelSource(config).first()
    assert loads == [
        (
            str(models / "first"),
            {
                "dtype": "bfloat16",
                "kernels": "auto",
                "num_blocks": 7,
                "block_size": 8,
                "device": "cpu",
            },
        )
    ]


def test_without_roots_siblings_of_the_first_model_may_be_loaded(loads, models):
    source = ModelSource(DrafterConfig(str(models / "first")))
    source.load("second")
    source.load(str(models / "second"))
    assert [model for model, _ in loads] == [str((models / "second").resolve())] * 2
    assert source.fingerprint("second") == tokenizer_fingerprint(models / "second")


@pytest.mark.parametrize("model", ["../elsewhere", "/etc", "third"])
def test_nothing_else_may_be_loaded_or_looked_at(loads, models, model):
    source = ModelSource(DrafterConfig(str(models / "first")))
    for method in (source.load, source.fingerprint):
        with pytest.raises(PermissionDeniedError, match=r"path=.*--model-roots"):
            method(model)
    assert loads == []


def test_roots_replace_the_first_models_parent(loads, models, tmp_path):
    root = tmp_path / "elsewhere"
    source = ModelSource(DrafterConfig(str(models / "first"), model_roots=(str(root),)))
    source.load(str(root))
    with pytest.raises(PermissionDeniedError):
        source.load(str(models / "second"))
    assert [model for model, _ in loads] == [str(root.resolve())]


def test_a_hub_id_without_roots_allows_nothing(loads, models):
    with pytest.raises(PermissionDeniedError):
        ModelSource(DrafterConfig("org/name")).load(str(models / "second"))
