"""One CA for all, a gRPC server that says who it takes its caller for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from minedraft.security.credentials import Credentials
from minedraft.security.interceptor import AuthInterceptor
from minedraft.transport.server import bind
from minedraft.transport.status import ErrorInterceptor
from tests.certificates import Authority

METHODS = {
    "status": "/minedraft.v1.Admin/GetStatus",
    "mode": "/minedraft.v1.Admin/SetMode",
    "generate": "/minedraft.v1.Generation/Generate",
    "link": "/minedraft.v1.TokenLink/SendPackets",
    "stray": "/somebody.Else/Call",
}


@pytest.fixture(scope="session")
def authority():
    return Authority()


class _Echo(grpc.GenericRpcHandler):
    """Every method of every service, unary and streaming."""

    def service(self, details):
        if details.method == METHODS["generate"]:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._call)

    async def _call(self, request, context):
        return request

    async def _stream(self, request, context):
        for _ in range(3):
            yield request


async def load(config, *own):
    """Read the files: not in the event loop."""
    return await asyncio.to_thread(Credentials, config, own)


@asynccontextmanager
async def echo_server(config):
    """Serve with these settings; yields the address and the server's credentials."""
    credentials = await load(config)
    server = grpc.aio.server(interceptors=[ErrorInterceptor(), AuthInterceptor(credentials)])
    server.add_generic_rpc_handlers((_Echo(),))
    port = bind(server, "127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}", credentials
    finally:
        await server.stop(0)
