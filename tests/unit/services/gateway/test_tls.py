"""services/gateway/tls.py: HTTPS, client certificates, and files that change under a live port."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager

import httpx2
import pytest

from minedraft.services.gateway import app
from minedraft.services.gateway.config import GatewayConfig
from tests.certificates import Authority


@asynccontextmanager
async def serving(security):
    """A gateway without a coordinator: who may come in is all that is asked."""
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    config = GatewayConfig(listen="127.0.0.1:0", coordinator="127.0.0.1:1", security=security)
    async with asyncio.TaskGroup() as group:
        group.create_task(app.run(config, ready=address.set_result, stop=stop))
        yield await address
        stop.set()


def trusting(authority, security=None):
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if security is not None:
        context.load_cert_chain(security.tls_cert, security.tls_key)
    return context


async def status(address, path, context):
    async with httpx2.AsyncClient(base_url=f"https://{address}", verify=context) as http:
        return (await http.get(path)).status_code


async def test_with_client_certificates_the_role_decides(tmp_path):
    authority = Authority()
    async with serving(authority.write(tmp_path / "server", "client")) as address:
        client = trusting(authority, authority.write(tmp_path / "client", "client"))
        drafter = trusting(authority, authority.write(tmp_path / "drafter", "drafter"))
        assert await status(address, "/version", client) == 200
        assert await status(address, "/v1/models", client) == 503  # let in; no coordinator
        assert await status(address, "/v1/models", drafter) == 403
        with pytest.raises(httpx2.HTTPError):
            await status(address, "/version", trusting(authority))


async def peer_serial(address, context):
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.close()
    await writer.wait_closed()
    return found


async def test_a_new_certificate_is_used_by_the_next_handshake(tmp_path):
    authority = Authority()
    security = authority.write(tmp_path / "server", "client")
    async with serving(security) as address:
        context = trusting(authority, authority.write(tmp_path / "client", "client"))
        before = await peer_serial(address, context)
        assert await peer_serial(address, context) == before
        authority.write(tmp_path / "server", "client")
        async with asyncio.timeout(10):
            while await peer_serial(address, context) == before:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.1)
