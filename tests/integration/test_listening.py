"""Processes listen where their configuration says, and nowhere else; under TLS like without."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.types import Mode
from tests.certificates import Authority
from tests.tiny_models import make_tiny_llama

pytestmark = [
    pytest.mark.multiproc,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("warm_processes"),
]

ROLES = ("coordinator", "drafter", "verifier")
LINK_HOST = "127.0.0.2"
CANARY = "xylophone"


def sockets_of(pid: int) -> set[int]:
    """Inodes of a process's sockets."""
    links = (fd.readlink() for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink())
    return {int(str(link)[8:-1]) for link in links if str(link).startswith("socket:[")}


def open_ports(pid: int) -> set[tuple[str, str, int]]:
    """(protocol, host, port) of every listening TCP and every bound UDP socket of a process."""
    mine = sockets_of(pid)
    found = set()
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            words = line.split()
            is_open = protocol.startswith("udp") or words[3] == "0A"  # TCP_LISTEN
            if is_open and int(words[9]) in mine:
                host, port = words[1].split(":")
                found.add((protocol, _host(host), int(port, 16)))
    return found


def _host(text: str) -> str:
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    raw = b"".join(words)
    host = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return host.removeprefix("::ffff:")  # gRPC binds IPv4 addresses through IPv6


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def health(monkeypatch):
    """Health addresses by role, and where gloo may listen, told through variables."""
    ports = {role: free_port() for role in ROLES}
    for role, port in ports.items():
        monkeypatch.setenv(f"MINEDRAFT_{role.upper()}_HEALTH_LISTEN", f"127.0.0.1:{port}")
        monkeypatch.setenv(f"MINEDRAFT_{role.upper()}_LOG_LEVEL", "debug")
    for role in ("drafter", "verifier"):
        monkeypatch.setenv(f"MINEDRAFT_{role.upper()}_LINK_BIND_HOST", LINK_HOST)
    return ports


@pytest.mark.parametrize("tls", [False, True])
async def test_only_declared_ports_are_open_and_only_on_declared_addresses(tmp_path, health, tls):
    model = str(make_tiny_llama(tmp_path / "model"))
    options = {}
    if tls:
        options["security"] = Authority().write(tmp_path / "tls", "admin", *ROLES)
    spec = ClusterSpec(
        target=model,
        draft=model,
        mode=Mode(2, 2, 3),
        listen="127.0.0.1:0",
        link="gloo",
        log_dir=str(tmp_path / "logs"),
        **options,
    )
    async with Cluster(spec) as cluster:
        async with await Client.connect(cluster.address, security=spec.security) as client:
            assert (await client.generate(CANARY * 3, max_tokens=8)).choices
            workers = {w.role: w for w in (await client.status()).workers}
        addresses = {role: worker.address for role, worker in workers.items()}
        addresses["coordinator"] = cluster.address
        assert workers["drafter"].link_epoch, "gloo is up, and its port with it"
        for child in cluster._children:
            declared = {int(addresses[child.name].rpartition(":")[2]), health[child.name]}
            opened = open_ports(child._process.pid)
            assert all(protocol.startswith("tcp") for protocol, _, _ in opened), opened
            assert {port for _, host, port in opened if host == "127.0.0.1"} == declared
            others = [host for _, host, _ in opened if host != "127.0.0.1"]
            assert others == ([] if child.name == "coordinator" else [LINK_HOST]), opened
            speaks_tls = _speaks_tls(int(addresses[child.name].rpartition(":")[2]))
            assert speaks_tls == tls
            assert not _speaks_tls(health[child.name])  # for Kubernetes
    for role in ROLES:
        written = (tmp_path / "logs" / f"{role}.log").read_text()
        assert '"server.ready"' in written
        assert CANARY not in written
        assert "PRIVATE KEY" not in written


def _speaks_tls(port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        try:
            with context.wrap_socket(plain):
                return True
        except (ssl.SSLError, OSError):
            return False
