"""The hub: used where it answers, left alone where it does not. The hub here is on loopback."""

from __future__ import annotations

import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from minedraft.errors import ModelError
from minedraft.model_files import model_hub
from minedraft.model_files.model_hub import HubFile

DATA = b"0123456789" * 5000
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE = HubFile("who/m", "m.gguf", "c" * 40)


class FakeHub:
    """One file of one commit, as the hub serves those of LFS."""

    def __init__(self):
        self.data = DATA
        self.etag = SHA256
        self.status = 200
        self.requests = []

    def serve(self):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.head()

            def do_GET(self):
                begin = int(
                    (self.headers.get("Range") or "bytes=0-")[len("bytes=") :].split("-")[0]
                )
                self.head(begin)
                if hub.status == 200:
                    self.wfile.write(hub.data[begin:])

            def head(self, begin=0):
                hub.requests.append(
                    (self.command, self.path, begin, self.headers.get("Authorization"))
                )
                self.send_response(hub.status if not begin or hub.status != 200 else 206)
                length = len(hub.data) - begin if hub.status == 200 else 0
                self.send_header("Content-Length", str(length))
                self.send_header("X-Repo-Commit", "c" * 40)
                self.send_header("ETag", f'"{hub.etag}"')
                if begin:
                    end = len(hub.data)
                    self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{end}")
                self.end_headers()

            def log_message(self, *_args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.endpoint = f"http://127.0.0.1:{server.server_port}"

        def stop():
            server.shutdown()
            thread.join()
            server.server_close()

        return stop


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    fake = FakeHub()
    stop = fake.serve()
    yield fake
    stop()


def fetch(hub, directory, report=lambda _done: None):
    return model_hub.fetch_file(FILE, len(DATA), SHA256, directory, report, hub.endpoint)


def test_the_file_comes_from_its_revision_with_progress_and_without_a_token(
    hub, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    seen = []
    path = fetch(hub, tmp_path, seen.append)
    assert path.read_bytes() == DATA
    assert tmp_path in path.parents
    assert seen[-1] == len(DATA)
    assert seen == sorted(seen)
    assert {request[1] for request in hub.requests} == {f"/who/m/resolve/{'c' * 40}/m.gguf"}
    assert {request[3] for request in hub.requests} == {None}
    assert capfd.readouterr().err == ""  # our bars, not the hub's


def test_a_file_of_another_size_is_not_downloaded(hub, tmp_path):
    hub.data = DATA[:-1]
    assert fetch(hub, tmp_path) is None
    assert {request[0] for request in hub.requests} == {"HEAD"}


def test_a_file_of_another_hash_is_not_downloaded(hub, tmp_path):
    hub.etag = hashlib.sha256(b"replaced").hexdigest()
    assert fetch(hub, tmp_path) is None
    assert {request[0] for request in hub.requests} == {"HEAD"}


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_hub_that_refuses_is_no_error_and_is_asked_once(hub, tmp_path, status):
    hub.status = status
    assert fetch(hub, tmp_path) is None
    assert len(hub.requests) == 1


def test_a_hub_that_is_not_there_is_no_error(tmp_path):
    began = time.monotonic()
    found = model_hub.fetch_file(
        FILE, len(DATA), SHA256, tmp_path, lambda _done: None, "http://127.0.0.1:1"
    )
    assert found is None
    assert time.monotonic() - began < 5


def test_a_hub_that_nobody_answers_for_is_waited_for_no_longer_than_the_bound(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(model_hub, "LOOK_UP_S", 0.05)
    released = threading.Event()
    # A resolver without a network: no timeout of HTTP's is heeded.
    monkeypatch.setattr(
        "huggingface_hub.get_hf_file_metadata", lambda *_args, **_kwargs: released.wait(15)
    )
    began = time.monotonic()
    assert model_hub.fetch_file(FILE, len(DATA), SHA256, tmp_path, lambda _done: None) is None
    assert time.monotonic() - began < 10
    released.set()


def test_a_download_that_breaks_is_no_error(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.hf_hub_download", broken)
    assert fetch(hub, tmp_path) is None


def broken(*_args, **_kwargs):
    raise ConnectionResetError("gone")


def test_a_snapshot_has_no_pickles_and_no_code(monkeypatch, tmp_path):
    asked = {}

    def snapshot(hub_id, *, allow_patterns):
        asked[hub_id] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert model_hub.fetch_snapshot("who/m") == tmp_path
    assert not [p for p in asked["who/m"] if p.endswith((".py", ".bin", ".pt", "*"))]


def test_a_snapshot_that_the_hub_does_not_give_is_one_line(monkeypatch):
    def fail(_hub_id, *, allow_patterns):
        raise OSError("no route to host\nwith more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(ModelError, match=r"^the hub says: .*no route to host[^\n]*$"):
        model_hub.fetch_snapshot("who/m")
