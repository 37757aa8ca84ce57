from __future__ import annotations

import os
from pathlib import Path

import pytest

from minedraft.link import nccl_log
from minedraft.link.nccl_log import transport_log, transports_in

SAID = """
node:71:83 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.7<0>
node:71:90 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
node:71:90 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(nccl_log, "_directory", None)
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM"),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "SHM/direct/direct"),
        ("Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA", "NET/IB/0/GDRDMA"),
        (SAID, "NET/Socket/0"),
        ("via NET/Socket/0 then via P2P/IPC", "NET/Socket/0, P2P/IPC"),
        ("NCCL INFO Bootstrap: Using eth0", ""),
        ("", ""),
    ],
)
def test_the_log_names_the_way_once(line, named):
    assert transports_in(line) == named


def test_what_is_said_while_it_is_open_is_found_and_the_environment_is_put_back():
    before = dict(os.environ)
    with transport_log() as log:
        assert os.environ["NCCL_DEBUG"] == "INFO"
        Path(os.environ["NCCL_DEBUG_FILE"]).write_text(SAID, encoding="utf-8")
        assert log.transports() == "NET/Socket/0"
    assert dict(os.environ) == before


def test_a_second_link_sees_only_its_own_lines():
    with transport_log() as log:
        path = Path(os.environ["NCCL_DEBUG_FILE"])
        path.write_text(SAID, encoding="utf-8")
    with transport_log() as log, path.open("a", encoding="utf-8") as file:
        assert os.environ["NCCL_DEBUG_FILE"] == str(path)
        print("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", file=file, flush=True)
        assert log.transports() == "P2P/IPC"


def test_two_links_at_once_share_the_log_and_leave_nothing_set():
    with transport_log():
        path = os.environ["NCCL_DEBUG_FILE"]
        with transport_log():
            assert os.environ["NCCL_DEBUG_FILE"] == path
    assert "NCCL_DEBUG" not in os.environ
    assert "NCCL_DEBUG_FILE" not in os.environ


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_FILE"])
def test_a_users_own_setting_stays(name, monkeypatch):
    monkeypatch.setenv(name, "mine")
    with transport_log() as log:
        assert os.environ[name] == "mine"
        assert log.transports() == ""
    assert os.environ[name] == "mine"


def test_the_log_is_for_this_user_alone():
    with transport_log():
        directory = Path(os.environ["NCCL_DEBUG_FILE"]).parent
    assert directory.stat().st_mode & 0o777 == 0o700
