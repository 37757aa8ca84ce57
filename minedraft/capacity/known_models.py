"""Shapes of well-known models, from the config.json that their makers publish. Pure.

Each name is that of the repository on huggingface.co that the figures are from. A test holds the
sum of weights against the size that the maker states.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from minedraft.capacity.model_shape import BYTES_PER_WEIGHT, ModelShape, shape_of_config
from minedraft.capacity.words import short
from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_QWEN3, _QWEN2, _LLAMA3 = 151_936, 151_936, 128_256

MODELS: Final[Mapping[str, tuple[str, ModelShape]]] = MappingProxyType(
    {
        shape.name: (f"huggingface.co/{owner}/{shape.name}", shape)
        for owner, shape in (
            ("Qwen", ModelShape("Qwen3-0.6B", 1024, 3072, 28, 16, 8, 128, _QWEN3, True, 40_960)),
            ("Qwen", ModelShape("Qwen3-1.7B", 2048, 6144, 28, 16, 8, 128, _QWEN3, True, 40_960)),
            ("Qwen", ModelShape("Qwen3-4B", 2560, 9728, 36, 32, 8, 128, _QWEN3, True, 40_960)),
            ("Qwen", ModelShape("Qwen3-8B", 4096, 12288, 36, 32, 8, 128, _QWEN3, False, 40_960)),
            ("Qwen", ModelShape("Qwen3-14B", 5120, 17408, 40, 40, 8, 128, _QWEN3, False, 40_960)),
            ("Qwen", ModelShape("Qwen3-32B", 5120, 25600, 64, 64, 8, 128, _QWEN3, False, 40_960)),
            (
                "meta-llama",
                ModelShape(
                    "Llama-3.2-1B", 2048, 8192, 16, 32, 8, 64, _LLAMA3, True, 131_072
                ),
            ),
            (
                "meta-llama",
                ModelShape(
                    "Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128, _LLAMA3, False, 131_072
                ),
            ),
            (
                "meta-llama",
                ModelShape(
                    "Llama-3.3-70B-Instruct", 8192, 28672, 80, 64, 8, 128, _LLAMA3, False, 131_072
                ),
            ),
            (
                "Qwen",
                ModelShape(
                    "Qwen2.5-Coder-0.5B-Instruct", 896, 4864, 24, 14, 2, 64, _QWEN2, True, 32_768
                ),
            ),
            (
                "Qwen",
                ModelShape(
                    "Qwen2.5-Coder-1.5B-Instruct", 1536, 8960, 28, 12, 2, 128, _QWEN2, True, 32_768
                ),
            ),
        )
    }
)  # fmt: skip
"""By name: where the shape is from, and the shape."""


def model_of(text: str, family: str = "") -> ModelShape:
    """Find a model.

    Args:
        text: A known name, its end where the target's family tells the rest (`0.6B`), or the path
            of a config.json. `:fp8` or `:int4` after it: how the layers are stored.
        family: Name of the target, for a short name.

    Raises:
        ConfigError: it is not known; says which are, and how to give another.
        ModelError: its config.json is bad.
    """
    name, colon, stored = text.partition(":")
    if colon and stored not in BYTES_PER_WEIGHT:
        raise ConfigError(
            f"model={short(text)}: {short(stored)} is no way to store weights; "
            f"want {', '.join(BYTES_PER_WEIGHT)}"
        )
    shape = _find(name, family)
    return replace(shape, weights=stored) if colon else shape


def _find(name: str, family: str) -> ModelShape:
    path = Path(name)
    if "/" in name and path.exists():
        return shape_of_config(path)
    by_case = {known.casefold(): shape for known, (_, shape) in MODELS.items()}
    base = name.rpartition("/")[2].casefold()
    stem = family.casefold().rpartition("-")[0]
    for wanted in (base, f"{base}-instruct", *_with_stem(base, stem)):
        if wanted in by_case:
            return by_case[wanted]
    if path.exists():
        return shape_of_config(path)
    raise ConfigError(
        f"model={short(name)}: not known, and no such file. Known are {', '.join(MODELS)}; of "
        "another one give the path of its config.json"
    )


def _with_stem(base: str, stem: str) -> tuple[str, ...]:
    """Names that a short one may stand for: `0.6b` beside `qwen3-32b` is `qwen3-0.6b`."""
    if not stem or not base[:1].isdigit():
        return ()
    return tuple(
        f"{part}-{base}{end}"
        for part in (stem, stem.rpartition("-")[0])
        if part
        for end in ("", "-instruct")
    )
