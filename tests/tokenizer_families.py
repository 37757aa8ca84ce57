"""Tiny tokenizers of ten families, written as their models' directories have them, for tests.

Trained here; the files beside tokenizer.json are in each family's own style, so that between them
they name tokens in every way that there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.tiny_tokenizers import CORPUS

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level_family(
    specials: list[str], *, split: str | None = None, nfc: bool = False
) -> Tokenizer:
    """A vocabulary without its special tokens, which are added behind it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC() if nfc else None
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    tokenizer.pre_tokenizer = plain if split is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), behavior="isolated"), plain]
    )  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in specials])
    return tokenizer


def sentencepiece_family(specials: list[str], *, prefix: str) -> Tokenizer:
    """Special tokens first, then bytes, then pieces.

    Args:
        specials: Beginning with the unknown token.
        prefix: `normalizer` or `metaspace`: who writes the dummy space; empty: nobody.
    """
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=specials[0], fuse_unk=True))
    replace = normalizers.Replace(" ", "▁")
    if prefix == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    elif prefix == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[*specials, *BYTES], limit_alphabet=50, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] not in BYTES]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def with_beginning(tokenizer: Tokenizer, bos: str) -> Tokenizer:
    """Let it begin every text with a token."""
    index = tokenizer.token_to_id(bos)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, index)]
    )
    return tokenizer


def _listed(tokenizer: Tokenizer, *extra: str, special: bool = True) -> dict[str, Any]:
    """`added_tokens_decoder`: what the tokenizer has, and what it has not."""
    size = tokenizer.get_vocab_size()
    found = {
        str(index): {
            "content": token.content,
            "special": token.special,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "normalized": token.normalized,
            "single_word": token.single_word,
        }
        for index, token in tokenizer.get_added_tokens_decoder().items()
    }
    for place, content in enumerate(extra):
        found[str(size + place)] = {"content": content, "special": special, "normalized": False}
    return found


def _gpt2() -> tuple[Tokenizer, dict[str, Any]]:
    end = "<|endoftext|>"
    tokenizer = byte_level_family([end])
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False,
            "bos_token": end, "eos_token": end, "unk_token": end,
        },
        "config.json": {"model_type": "gpt2", "eos_token_id": tokenizer.token_to_id(end)},
    }  # fmt: skip


def _llama2() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = with_beginning(
        sentencepiece_family(["<unk>", "<s>", "</s>"], prefix="normalizer"), "<s>"
    )
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
            "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False,
        },
        "special_tokens_map.json": {
            "bos_token": {"content": "<s>", "lstrip": False, "normalized": False, "rstrip": False,
                          "single_word": False},
            "pad_token": "<pad>",
        },
        "added_tokens.json": {"<pad>": 420},
        "config.json": {"model_type": "llama", "eos_token_id": 2},
    }  # fmt: skip


def _llama3() -> tuple[Tokenizer, dict[str, Any]]:
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                "<|end_header_id|>", "<|eot_id|>"]  # fmt: skip
    tokenizer = with_beginning(byte_level_family(specials, split=LLAMA3_SPLIT), specials[0])
    ends = [tokenizer.token_to_id(content) for content in ("<|end_of_text|>", "<|eot_id|>")]
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": specials[0],
            "eos_token": "<|eot_id|>", "added_tokens_decoder": _listed(tokenizer),
        },
        "generation_config.json": {"eos_token_id": ends},
        "config.json": {"model_type": "llama", "eos_token_id": ends[0]},
    }  # fmt: skip


def _qwen() -> tuple[Tokenizer, dict[str, Any]]:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = byte_level_family(specials, split=LLAMA3_SPLIT, nfc=True)
    ends = [tokenizer.token_to_id(content) for content in ("<|im_end|>", "<|endoftext|>")]
    listed = _listed(tokenizer, "<tool_call>", "</tool_call>", special=False)
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_prefix_space": False,
            "added_tokens_decoder": listed,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        },
        "generation_config.json": {"eos_token_id": ends},
        "config.json": {"model_type": "qwen2", "eos_token_id": ends[1]},
    }  # fmt: skip


def _gemma() -> tuple[Tokenizer, dict[str, Any]]:
    specials = ["<unk>", "<eos>", "<bos>", "<pad>", "<start_of_turn>", "<end_of_turn>"]
    tokenizer = with_beginning(sentencepiece_family(specials, prefix=""), "<bos>")
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": {"content": "<bos>", "__type": "AddedToken", "special": True},
            "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>",
            "extra_special_tokens": {"boi_token": "<start_of_image>"},
        },
        "generation_config.json": {"eos_token_id": [1, 5]},
        "config.json": {"model_type": "gemma2", "text_config": {"eos_token_id": 1}},
    }  # fmt: skip


def _phi3() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = sentencepiece_family(["<unk>", "<s>", "</s>"], prefix="normalizer")
    more = [("<|endoftext|>", False), ("<|assistant|>", True), ("<|end|>", True)]
    for content, rstrip in more:
        token = AddedToken(content, rstrip=rstrip, normalized=False, special=not rstrip)
        tokenizer.add_tokens([token])
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>", "unk_token": "<unk>", "legacy": False,
            "added_tokens_decoder": _listed(tokenizer),
        },
        "added_tokens.json": {"<|endoftext|>": 999},
        "generation_config.json": {"eos_token_id": [420, 421, 422]},
        "config.json": {"model_type": "phi3", "eos_token_id": 420},
    }  # fmt: skip


def _mistral() -> tuple[Tokenizer, dict[str, Any]]:
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    tokenizer = with_beginning(sentencepiece_family(specials, prefix="metaspace"), "<s>")
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
            "unk_token": "<unk>", "image_token": "[IMG]",
        },
        "special_tokens_map.json": {"eos_token": "</s>", "additional_special_tokens": ["[END]"]},
        "config.json": {"model_type": "mistral", "eos_token_id": 2},
    }  # fmt: skip


def _unigram() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>",
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>",
            "unk_token": "<unk>", "sep_token": "</s>", "cls_token": "<s>",
        },
        "added_tokens.json": {"<madeupword0>": tokenizer.get_vocab_size()},
        "config.json": {"model_type": "xglm", "eos_token_id": 2},
    }  # fmt: skip


def _wordpiece() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=250, special_tokens=specials, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]",
            "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
            "mask_token": "[MASK]", "eos_token": "[EOS]",
        },
        "config.json": {"model_type": "bert"},
    }  # fmt: skip


def _wordlevel() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>", "<eos>"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer, {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>",
            "unk_token": "<unk>", "extra_special_tokens": ["<sep>", "<eos>"],
        },
        "generation_config.json": {"eos_token_id": 1},
    }  # fmt: skip


FAMILIES: dict[str, Callable[[], tuple[Tokenizer, dict[str, Any]]]] = {
    "gpt2": _gpt2,
    "llama2": _llama2,
    "llama3": _llama3,
    "qwen": _qwen,
    "gemma": _gemma,
    "phi3": _phi3,
    "mistral": _mistral,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
    "wordlevel": _wordlevel,
}
"""Name to builder of a tokenizer and of the files beside it."""


def write_family(name: str, directory: Path) -> Path:
    """Write the files of a family; none has weights."""
    tokenizer, files = FAMILIES[name]()
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    for file, document in files.items():
        (directory / file).write_text(json.dumps(document), encoding="utf-8")
    return directory
