"""What every link test needs: specs, packets, and a verifier's control plane on a free port."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import grpc
import pytest

from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.transport.channel import server_options
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.status import ErrorInterceptor
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.v1 import link_pb2_grpc

_names = itertools.count()


class Losses:
    """An `on_lost` that remembers, and that a test can wait for."""

    def __init__(self):
        self.reports = []
        self.happened = threading.Event()

    def __call__(self, epoch, reason):
        self.reports.append((epoch, reason))
        self.happened.set()


@pytest.fixture
def losses():
    return Losses


@pytest.fixture
def make_spec():
    base = LinkSpec(
        epoch=1,
        name="x",
        transport=Transport.LOCAL,
        max_rows=4,
        max_draft_tokens=3,
        q_width=0,
        verifier_address="127.0.0.1:1",
        timeout_s=10.0,
    )
    return lambda **kwargs: replace(base, **{"name": f"link-{next(_names)}", **kwargs})


@pytest.fixture
def make_packet():
    def make(step_id, *, epoch=1, token_ids=(1, 2), row_id=7):
        return DraftPacket(epoch, step_id, 0, (DraftedRow(row_id, 12, token_ids),))

    return make


@pytest.fixture
async def control_plane():
    """A verifier's server: (address, rendezvous)."""
    rendezvous = Rendezvous()
    server = grpc.aio.server(options=server_options(2**21), interceptors=[ErrorInterceptor()])
    link_pb2_grpc.add_TokenLinkServicer_to_server(TokenLinkServicer(rendezvous), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", rendezvous
    await server.stop(0)
