"""The script that runs beside the coordinator: the follower of the choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.admin import Status, SwapResult, WorkerStatus
from minedraft.errors import (
    IncompatibleWorkerError,
    PermissionDeniedError,
    WorkerUnavailableError,
)
from minedraft.model.directory import open_directory
from minedraft.plans import WorkerIdentity
from minedraft.types import Mode, ModelInfo
from tests.deploy.rendered import K8S
from tests.deploy.test_components import load_script
from tests.tiny_models import make_tiny_llama

IDENTITY = WorkerIdentity("id", 1, 1, 1, "0.0")
follower = load_script(K8S / "base" / "follow_drafter_choice.py")


def model(name):
    return ModelInfo(name, 100, 100, "f" * 64, "float32")


def worker(role, address, name, *, connected=True):
    return WorkerStatus(role, address, connected, IDENTITY, model(name))


class Client:
    """Swaps at once, unless told to refuse. Drafters follow the links of `links`."""

    def __init__(self, *workers, links=()):
        self.workers = {each.address: each for each in workers}
        self.links = dict(links)
        self.swaps = []
        self.error = None

    def status(self):
        return Status(IDENTITY, Mode(2, 8, 4), workers=tuple(self.workers.values()))

    def swap_drafter(self, *, model, replace):  # as the SDK calls it
        self.swaps.append((replace, model))
        if self.error is not None:
            raise self.error
        self.workers[replace] = worker("drafter", replace, Path(self.links.get(model, model)).name)
        return SwapResult(2, self.workers[replace].model, 1, 1)


@pytest.fixture
def choice(tmp_path):
    file = tmp_path / "draft_model"
    file.write_text("/models/b\n")
    return file


def test_drafters_with_another_model_are_swapped_once(choice):
    client = Client(
        worker("verifier", "v:1", "target"),
        worker("drafter", "d:1", "a"),
        worker("drafter", "d:2", "b"),
    )
    following = follower.Follower()
    for _ in range(3):
        following.look(client, choice)
    assert client.swaps == [("d:1", "/models/b")]


def test_a_drafter_that_is_away_is_swapped_when_it_is_back(choice):
    client = Client(worker("drafter", "d:1", "a", connected=False))
    following = follower.Follower()
    following.look(client, choice)
    assert client.swaps == []
    client.workers["d:1"] = worker("drafter", "d:1", "a")
    following.look(client, choice)
    assert client.swaps == [("d:1", "/models/b")]


def test_a_refusal_is_not_repeated_at_once_and_another_choice_is_tried(choice, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(follower.time, "monotonic", lambda: now)
    client, following = Client(worker("drafter", "d:1", "a")), follower.Follower()
    client.error = IncompatibleWorkerError("vocabulary sizes 1 and 2")
    following.look(client, choice)
    following.look(client, choice)
    assert len(client.swaps) == 1
    choice.write_text("/models/c")
    following.look(client, choice)
    assert client.swaps[1:] == [("d:1", "/models/c")]
    now += follower.RETRY_S
    following.look(client, choice)
    assert len(client.swaps) == 3


def test_the_choice_is_read_through_the_kubelets_links(tmp_path):
    for version, text in (("1", "/models/a"), ("2", "/models/b")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "draft_model").write_text(text)
    data, file = tmp_path / "..data", tmp_path / "draft_model"
    data.symlink_to("1")
    file.symlink_to("..data/draft_model")
    assert follower.wanted_model(file) == "/models/a"
    fresh = tmp_path / "..fresh"
    fresh.symlink_to("2")
    fresh.rename(data)  # as the kubelet does it
    assert follower.wanted_model(file) == "/models/b"


def test_no_choice_changes_nothing(tmp_path):
    client, following = Client(worker("drafter", "d:1", "a")), follower.Follower()
    following.look(client, tmp_path / "missing")
    (tmp_path / "empty").write_text("\n")
    following.look(client, tmp_path / "empty")
    assert client.swaps == []


def test_a_link_that_only_the_drafter_has_is_swapped_to_once(choice):
    client = Client(worker("drafter", "d:1", "a"), links={"/models/b": "/models/b-v2"})
    following = follower.Follower()
    for _ in range(3):
        following.look(client, choice)
    assert client.swaps == [("d:1", "/models/b")]
    client.workers["d:1"] = worker("drafter", "d:1", "a")  # restarted with another model
    following.look(client, choice)
    assert client.swaps == [("d:1", "/models/b")] * 2


def test_a_link_is_followed_as_the_drafter_follows_it(choice, tmp_path):
    make_tiny_llama(tmp_path / "b-v2")
    link = tmp_path / "b"
    link.symlink_to("b-v2")
    choice.write_text(str(link))
    client = Client(worker("drafter", "d:1", open_directory(link).name))
    follower.Follower().look(client, choice)
    assert client.swaps == []


def test_a_link_that_leads_elsewhere_is_another_choice(choice, tmp_path):
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
    link = tmp_path / "b"
    link.symlink_to("v1")
    choice.write_text(str(link))
    client = Client(worker("drafter", "d:1", "a"), links={str(link): "v1"})
    following = follower.Follower()
    following.look(client, choice)
    link.unlink()
    link.symlink_to("v2")
    client.links = {str(link): "v2"}
    for _ in range(3):
        following.look(client, choice)
    assert client.swaps == [("d:1", str(link))] * 2
    assert client.workers["d:1"].model.name == "v2"


def test_a_loop_of_links_is_the_drafters_to_refuse(choice, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    choice.write_text(str(loop))
    client = Client(worker("drafter", "d:1", "a"))
    client.error = PermissionDeniedError("not found")
    follower.Follower().look(client, choice)
    assert client.swaps == [("d:1", str(loop))]


class EnoughError(Exception):
    """Ends the loop of the follower."""


@pytest.fixture
def dialled(monkeypatch):
    """What each connection of the script was given; nobody ever answers."""
    given = []

    def refuse(_address, *, security, **_options):
        given.append(security)
        raise WorkerUnavailableError("nobody")

    monkeypatch.setattr(follower, "SyncClient", refuse)
    return given


def add_secret(directory):
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (directory / name).touch()


def test_certificates_are_used_where_the_secret_is_mounted(tmp_path):
    assert not follower.security_in(tmp_path).has_files
    add_secret(tmp_path)
    assert follower.security_in(tmp_path).is_mtls


def test_the_follower_uses_a_secret_that_came_after_its_start(dialled, tmp_path, monkeypatch):
    for name, value in (
        ("MINEDRAFT_ADDRESS", "localhost:1"),
        ("CHOICE_FILE", str(tmp_path / "draft_model")),
        ("TLS_DIRECTORY", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)

    def pause(_seconds):
        if len(dialled) == 2:
            raise EnoughError
        add_secret(tmp_path)

    monkeypatch.setattr(follower.time, "sleep", pause)
    monkeypatch.setattr(follower, "end_at_sigterm", lambda: None)
    monkeypatch.setattr(follower.logging, "configure", lambda *_, **__: None)
    with pytest.raises(EnoughError):
        follower.main()
    assert [security.is_mtls for security in dialled] == [False, True]
