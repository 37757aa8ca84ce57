"""The model hub (Hugging Face). Only this file talks to it; the worker extra brings its library.

A model that a person names is fetched whole, by its id, with the person's own token. A file of the
demo's models is fetched by its hash, without a token, and a hub that cannot be used is no error:
the same bytes are elsewhere.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from minedraft.errors import ModelError
from minedraft.model_files.json_file import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tqdm import tqdm

log = structlog.get_logger(__name__)

SNAPSHOT_PATTERNS: Final = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model")
"""Files of a model: no pickles, no code."""
LOOK_UP_S: Final = 5.0
"""Longest time to find out whether the hub has a file. Without a network often no answer comes:
a name does not resolve, a packet gets no reply."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the hub."""

    repo_id: str
    filename: str
    revision: str = "main"
    """Commit or branch; the hash decides in any case."""


def fetch_snapshot(hub_id: str) -> Path:
    """Fetch a model's weights, settings and tokenizer into the hub's own cache.

    Args:
        hub_id: ``owner/name``.

    Raises:
        ModelError: what the hub says, in one line.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(SNAPSHOT_PATTERNS)))
    # Its errors have no common root: HTTP, offline, a bad id, a full disk.
    except Exception as error:
        raise ModelError(f"the hub says: {one_line(error)}") from error


def fetch_file(  # noqa: PLR0917 the arguments are one file's facts, and callbacks
    file: HubFile,
    size_bytes: int,
    sha256: str,
    directory: Path,
    report: Callable[[int], None],
    endpoint: str | None = None,
) -> Path | None:
    """Fetch one file, or report that the hub cannot be used.

    A file of another size or hash is not downloaded: the hub's copy has been replaced. The caller
    checks the bytes.

    Args:
        file: Repository, file name and revision.
        size_bytes: Length that it must have.
        sha256: Hash that it must have; the hub tells those of large files.
        directory: For this file alone; an interrupted download resumes from it.
        report: Called with the bytes so far.
        endpoint: Another hub; None: the usual one.

    Returns:
        The path; None: the hub could not be used.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    url = hf_hub_url(file.repo_id, file.filename, revision=file.revision, endpoint=endpoint)
    try:
        # First, because this call does not retry: hf_hub_download would spend 25 s to find out
        # that there is no network.
        found = _within(
            LOOK_UP_S, lambda: get_hf_file_metadata(url, token=False, timeout=LOOK_UP_S)
        )
        is_hash = found.etag is not None and len(found.etag) == len(sha256)
        if found.size != size_bytes or (is_hash and found.etag != sha256):
            log.warning("hub.file_differs", repo=file.repo_id, size_bytes=found.size,
                        etag=found.etag, wanted=sha256)  # fmt: skip
            return None
        path = hf_hub_download(
            file.repo_id,
            file.filename,
            revision=file.revision,
            local_dir=directory,
            etag_timeout=LOOK_UP_S,
            token=False,
            tqdm_class=_reporting_bar(report),
            endpoint=endpoint,
        )
    # Offline, a proxy's error page, a gated repository, a broken stream: whatever the reason, the
    # next source has the same bytes, so none of them may end the job.
    except Exception as error:  # noqa: BLE001
        reason = f"{type(error).__name__}: {error}"
        log.info("hub.unavailable", repo=file.repo_id, reason=reason[:200])
        return None
    return Path(path)


def _within(seconds: float, call: Callable[[], Any]) -> Any:  # noqa: ANN401  # whatever it returns
    """Call it on a thread that is left behind when it takes longer: a resolver heeds no timeout."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name="hub look-up", daemon=True).start()
    return done.result(seconds)


def _reporting_bar(report: Callable[[int], None]) -> type[tqdm[Any]]:
    """A tqdm class that draws nothing and reports the count; the hub takes progress only as one."""
    from tqdm import tqdm as bar

    class ReportingBar(bar):  # type: ignore[type-arg]  # not subscriptable at run time
        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (tqdm's own)
            self._count = int(kwargs.get("initial") or 0)
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            self._count += int(n or 0)
            report(self._count)
            return super().update(n)

    return ReportingBar
