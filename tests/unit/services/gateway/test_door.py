"""services/gateway/door.py: who may come in, and what is said of errors that no route caught."""

from __future__ import annotations

import hashlib

import httpx2
import pytest

from minedraft.security.config import SecurityConfig
from minedraft.security.roles import Role, roles_of_certificate
from minedraft.services.gateway.door import certificate_names
from tests.unit.services.gateway.conftest import running

KEYS = {role: f"{role}-key-0123456789" for role in ("client", "admin", "monitor", "drafter")}


@pytest.fixture
async def http(fake, tmp_path):
    hashed = hashlib.sha256(b"hashed-key-0123456789").hexdigest()
    lines = [f"{role} {key}" for role, key in KEYS.items()]
    path = tmp_path / "tokens"
    path.write_text("\n".join([*lines, f"client sha256:{hashed}"]))
    path.chmod(0o600)
    async with (
        running(fake, security=SecurityConfig(token_file=str(path)), key=KEYS["admin"]) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as http,
    ):
        yield http


def bearer(key):
    return {"authorization": f"Bearer {key}"}


async def test_keys_are_the_token_file_and_the_role_decides(http):
    for path in ("/health", "/ping", "/version", "/openapi.json"):
        assert (await http.get(path)).status_code == 200
    for headers, status in (
        ({}, 401),
        (bearer("wrong-key-0123456789"), 401),
        (bearer(KEYS["drafter"]), 403),
        (bearer(KEYS["monitor"]), 403),
        (bearer(KEYS["client"]), 200),
        (bearer(KEYS["admin"]), 200),
        (bearer("hashed-key-0123456789"), 200),
    ):
        answered = await http.post("/v1/completions", json={"prompt": "a"}, headers=headers)
        assert answered.status_code == status, headers
        if status != 200:
            assert answered.json()["error"]["message"]
    assert (await http.get("/load", headers=bearer(KEYS["monitor"]))).status_code == 200
    assert (await http.get("/load")).status_code == 401


async def test_without_keys_any_key_passes_on_loopback(fake):
    async with (
        running(fake) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as http,
    ):
        for headers in ({}, bearer("EMPTY")):
            assert (await http.get("/v1/models", headers=headers)).status_code == 200


def test_the_role_of_a_certificate_is_read_as_over_grpc():
    found = {
        "subject": ((("commonName", "minedraft:role:drafter"),),),
        "subjectAltName": (("URI", "minedraft:role:client"), ("DNS", "admin.role.minedraft")),
    }
    assert roles_of_certificate(certificate_names(found)) == {Role.CLIENT, Role.ADMIN}
    assert roles_of_certificate(certificate_names(None)) == frozenset()
    named = {"subject": ((("commonName", "minedraft:role:client"),),)}
    assert roles_of_certificate(certificate_names(named)) == {Role.CLIENT}
