"""Finds the parts of a tokenizer.json that transformers replaces by those of a tokenizer class.

`tokenizer_class` of tokenizer_config.json chooses a class that writes its own way from text to
pieces, with `add_prefix_space` and `legacy` of the same file: then these decide, not
tokenizer.json. Most classes write what tokenizer.json has anyway; here are those whose settings
change ids. Pure: takes what was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from minedraft.model_files.json_file import JsonObject

_BYTE_LEVEL_CLASSES: Final = frozenset({"GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer"})
_ALWAYS_QWEN2: Final = frozenset({"qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"})
"""Architectures for which transformers takes Qwen2Tokenizer, whatever their files say."""
GENERIC_ARCHITECTURES: Final = frozenset(
    {
        "beam", "bigbird_pegasus", "ernie4_5", "ernie4_5_moe", "flex_olmo", "fuyu", "glm",
        "glm4", "glm4_moe", "glm4_moe_lite", "got_ocr2", "gpt_bigcode", "granite", "granitemoe",
        "granitemoehybrid", "granitemoeshared", "hyperclovax", "internlm3", "iquestcoder",
        "jamba", "kimi_linear", "mimo_v2_flash", "minicpm3", "minimax_m2", "ministral",
        "ministral3", "mistral", "mixtral", "modernbert-decoder", "nemotron", "olmo2", "olmo3",
        "olmo_hybrid", "persimmon", "phi3", "phimoe", "stablelm", "xlm-roberta-xl",
    }
)  # fmt: skip
"""Architectures for which transformers takes tokenizer.json as it is, whatever class is named."""


def replaced_parts(
    tokenizer: JsonObject, settings: JsonObject | None, config: JsonObject | None
) -> dict[str, Any]:
    """Return the parts of tokenizer.json that another file decides.

    Args:
        tokenizer: tokenizer.json.
        settings: tokenizer_config.json; None if there is none.
        config: config.json; None if there is none.

    Returns:
        `normalizer`, `pre_tokenizer` and `decoder` as tokenizer.json would write them; without
        those that stay.

    Raises:
        ModelError: A setting has another shape; names it.
    """
    if settings is None:
        return {}
    architecture = None if config is None else config.text("model_type")
    name = settings.text("tokenizer_class") or (config and config.text("tokenizer_class")) or ""
    name = name.removesuffix("Fast")
    if architecture in _ALWAYS_QWEN2:
        name = "Qwen2Tokenizer"
    if architecture in GENERIC_ARCHITECTURES:
        return {}
    before = tokenizer.part("pre_tokenizer")
    if name in _BYTE_LEVEL_CLASSES and before is not None:
        prefix = settings.flag("add_prefix_space", default=False)
        changed = _with_prefix_space(before, prefix=prefix)
        return {} if changed == before.values else {"pre_tokenizer": changed}
    if name == "LlamaTokenizer" and not _is_byte_level(tokenizer):
        return _llama(
            prefix=settings.flag("add_prefix_space", default=True),
            legacy=settings.flag("legacy", default=False),
        )
    return {}


def _with_prefix_space(part: JsonObject, *, prefix: bool) -> dict[str, Any]:
    changed = dict(part.values)
    if changed.get("type") == "ByteLevel":
        changed["add_prefix_space"] = prefix
    if changed.get("type") == "Sequence":
        changed["pretokenizers"] = [
            _with_prefix_space(inner, prefix=prefix) for inner in part.parts("pretokenizers")
        ]
    return changed


def _is_byte_level(tokenizer: JsonObject) -> bool:
    """Whether bytes stand behind its characters: Llama 3, whose files name Llama 2's class."""
    parts = [part for name in ("pre_tokenizer", "decoder") if (part := tokenizer.part(name))]
    inner = [
        entry
        for part in parts
        for name in ("pretokenizers", "decoders")
        for entry in part.parts(name)
    ]
    return any(part.values.get("type") == "ByteLevel" for part in (*parts, *inner))


def _llama(*, prefix: bool, legacy: bool) -> dict[str, Any]:
    """Return the parts of transformers' LlamaTokenizer."""
    scheme = "never" if not prefix else "always" if legacy else "first"
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False,
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *([strip] if prefix else []),
            ],
        },
    }  # fmt: skip
