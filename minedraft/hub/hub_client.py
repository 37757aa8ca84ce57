"""Fetches one file from the Hugging Face hub, or reports that the hub cannot be used.

It verifies nothing: `download` checks the bytes. No token is sent: the demo's models are public.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.hub.sources import HubFile

log = structlog.get_logger(__name__)

_CONNECT_TIMEOUT_S: Final = 5.0


def fetch_from_hub(
    file: HubFile, size_bytes: int, directory: Path, report: Callable[[int], None]
) -> Path | None:
    """Return the downloaded file, or None where the hub cannot be used.

    A file of another size is not downloaded at all: the hub's copy has been replaced.

    Args:
        file: Repository and file name.
        size_bytes: What it must be long.
        directory: Scratch space; an interrupted download is resumed from it.
        report: Told the bytes so far.
    """
    try:
        # Asked first because this call does not retry: hf_hub_download would spend 25 s to find out
        # that there is no network.
        found = get_hf_file_metadata(
            hf_hub_url(file.repo_id, file.filename), token=False, timeout=_CONNECT_TIMEOUT_S
        )
        if found.size != size_bytes:
            log.warning("hub.size_differs", repo=file.repo_id, found=found.size, wanted=size_bytes)
            return None
        path = hf_hub_download(
            file.repo_id,
            file.filename,
            local_dir=directory / "hub",
            etag_timeout=_CONNECT_TIMEOUT_S,
            token=False,
            tqdm_class=_reporting_bar(report),
        )
    # Offline, a proxy's error page, a gated repository, a broken stream: whatever the reason, the
    # next source carries the same bytes, so none of them may end the job.
    except Exception as error:  # noqa: BLE001
        reason = f"{type(error).__name__}: {error}"
        log.info("hub.unavailable", repo=file.repo_id, reason=reason[:200])
        return None
    return Path(path)


def _reporting_bar(report: Callable[[int], None]) -> type[tqdm[Any]]:
    """A tqdm class that draws nothing and reports the count; the hub takes progress only as one."""

    class ReportingBar(tqdm):  # type: ignore[type-arg]  # not subscriptable at run time
        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (tqdm's own)
            self._count = int(kwargs.get("initial") or 0)
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            self._count += int(n or 0)
            report(self._count)
            return super().update(n)

    return ReportingBar
