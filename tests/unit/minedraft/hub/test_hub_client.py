"""The hub: used where it answers, left alone where it does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from minedraft.hub import hub_client
from minedraft.hub.sources import HubFile

FILE = HubFile("who/m", "m.gguf")


@pytest.fixture
def hub(monkeypatch):
    """A hub that answers with `size` and writes `data`; either may be an error to raise."""
    fake = SimpleNamespace(size=10, data=b"0123456789", calls=[])

    def metadata(url, *, token, timeout):
        fake.calls.append(("metadata", token, timeout))
        if isinstance(fake.size, Exception):
            raise fake.size
        return SimpleNamespace(size=fake.size)

    def download(repo_id, filename, *, local_dir, token, tqdm_class, **settings):
        fake.calls.append(("download", token))
        if isinstance(fake.data, Exception):
            raise fake.data
        with tqdm_class(total=10, initial=4, name="hub") as bar:
            bar.update(2)
            bar.update(4)
        local_dir.mkdir()
        (local_dir / filename).write_bytes(fake.data)
        return str(local_dir / filename)

    monkeypatch.setattr(hub_client, "get_hf_file_metadata", metadata)
    monkeypatch.setattr(hub_client, "hf_hub_download", download)
    return fake


def test_the_file_comes_with_progress_that_counts_what_was_there(hub, tmp_path, capfd):
    seen = []
    path = hub_client.fetch_from_hub(FILE, 10, tmp_path, seen.append)
    assert path.read_bytes() == b"0123456789"
    assert seen == [6, 10]
    assert capfd.readouterr().err == ""  # our bars, not the hub's


@pytest.mark.parametrize("error", [OSError("no route"), TimeoutError(), RuntimeError("gated")])
def test_a_hub_that_does_not_answer_is_no_error(hub, tmp_path, error):
    hub.size = error
    assert hub_client.fetch_from_hub(FILE, 10, tmp_path, lambda done: None) is None
    assert [call[0] for call in hub.calls] == ["metadata"]


def test_a_download_that_breaks_is_no_error(hub, tmp_path):
    hub.data = ConnectionResetError("gone")
    assert hub_client.fetch_from_hub(FILE, 10, tmp_path, lambda done: None) is None


def test_a_file_of_another_size_is_not_downloaded(hub, tmp_path):
    hub.size = 11
    assert hub_client.fetch_from_hub(FILE, 10, tmp_path, lambda done: None) is None
    assert [call[0] for call in hub.calls] == ["metadata"]


def test_no_token_is_ever_sent_and_the_first_call_is_short(hub, tmp_path):
    hub_client.fetch_from_hub(FILE, 10, tmp_path, lambda done: None)
    assert hub.calls == [("metadata", False, 5.0), ("download", False)]
