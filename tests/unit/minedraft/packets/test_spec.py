from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import ConfigError, InvalidRequestError
from minedraft.link.options import LinkOptions
from minedraft.packets.packet import PacketLayout
from minedraft.packets.spec import LinkSpec, Transport

SPEC = LinkSpec(
    epoch=1,
    name="e1.a1",
    transport=Transport.LOCAL,
    max_rows=8,
    max_draft_tokens=4,
    q_width=2,
    verifier_address="127.0.0.1:1",
    timeout_s=1.0,
)


def test_a_spec_knows_the_shape_of_its_packets():
    assert SPEC.layout == PacketLayout(8, 4, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch", 0),
        ("epoch", 2**64),
        ("name", ""),
        ("name", "x" * 257),
        ("name", "a\nb"),
        ("name", "é"),
        ("timeout_s", 0.0),
        ("timeout_s", float("nan")),
        ("timeout_s", float("inf")),
        ("max_rows", 0),
        ("max_draft_tokens", 33),
        ("q_width", 65),
    ],
)
def test_a_field_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(InvalidRequestError, match=field) as refused:
        replace(SPEC, **{field: value})
    assert refused.value.field == field


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_listening_everywhere_is_refused(host):
    with pytest.raises(ConfigError, match="bind_host"):
        LinkOptions(bind_host=host)


def test_a_heartbeat_slower_than_the_timeout_is_refused():
    with pytest.raises(ConfigError, match="heartbeat_s"):
        LinkOptions(op_timeout_s=1.0, heartbeat_s=0.6)
