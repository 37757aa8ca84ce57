"""Writes the tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.

It refuses a pre-tokenizer it does not know: a wrong one splits text at other places than in
training, and nothing would show it but worse answers.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tokenizers import normalizers, pre_tokenizers
from transformers import AutoTokenizer

from minedraft.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import gguf
    from tokenizers import Tokenizer

_UNUSED: Final = 5
"""gguf.TokenType.UNUSED: rows that pad the embedding, spelled ``[PAD151665]``."""


def save_tokenizer(reader: gguf.GGUFReader, gguf_path: Path, directory: Path) -> None:
    """Convert, add what transformers leaves out, and save.

    Args:
        reader: The open file.
        gguf_path: Where it is.
        directory: Gets the tokenizer files; config.json is already there.

    Raises:
        ModelError: The pre-tokenizer is unknown, or there is no chat template.
    """
    kind = (_contents(reader, "tokenizer.ggml.model"), _contents(reader, "tokenizer.ggml.pre"))
    complete = _COMPLETIONS.get(kind)
    if complete is None:
        known = ", ".join(f"{model}/{pre}" for model, pre in _COMPLETIONS)
        raise ModelError(f"model {gguf_path}: tokenizer {kind[0]}/{kind[1]} is not one of: {known}")
    tokenizer = AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)
    if not tokenizer.chat_template:
        raise ModelError(f"model {gguf_path} has no chat template")
    complete(tokenizer.backend_tokenizer)
    tokenizer.model_max_length = json.loads((directory / "config.json").read_text())[
        "max_position_embeddings"
    ]
    tokenizer.clean_up_tokenization_spaces = False
    # The template goes into tokenizer_config.json, as the models' authors do it: one file fewer.
    tokenizer.save_pretrained(directory, save_jinja_files=False)
    _drop_unused(reader, directory / "tokenizer.json")


def _drop_unused(reader: gguf.GGUFReader, path: Path) -> None:
    """Remove the padding rows, so that the vocabulary equals the authors' own.

    The ids stay in the model (its vocab_size is padded), they just have no text any more.
    """
    types = _contents(reader, "tokenizer.ggml.token_type")
    if not isinstance(types, list):
        return
    document = json.loads(path.read_text())
    vocabulary = document["model"]["vocab"]
    document["model"]["vocab"] = {
        token: index for token, index in vocabulary.items() if types[index] != _UNUSED
    }
    path.write_text(json.dumps(document, ensure_ascii=False))


def _complete_smollm(tokenizer: Tokenizer) -> None:
    """Split off every digit as its own token, before anything else.

    transformers 5.24 has no entry for ``smollm`` and falls back to GPT-2's splitting, which differs
    for white space before a digit.
    """
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _complete_qwen2(tokenizer: Tokenizer) -> None:
    """Composed characters, as in the authors' tokenizer.json; GGUF does not carry a normalizer."""
    tokenizer.normalizer = normalizers.NFC()


_COMPLETIONS: Final[Mapping[tuple[object, object], Callable[[Tokenizer], None]]] = MappingProxyType(
    {
        ("gpt2", "smollm"): _complete_smollm,
        ("gpt2", "qwen2"): _complete_qwen2,
    }
)


def _contents(reader: gguf.GGUFReader, key: str) -> object:
    """Return a metadata value; None if the file has none."""
    field = reader.fields.get(key)
    return None if field is None else field.contents()
