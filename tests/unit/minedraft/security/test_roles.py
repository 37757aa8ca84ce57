from __future__ import annotations

import pytest

from minedraft.security.roles import POLICY, Role, allowed_roles, roles_of_certificate
from tests.role_table import MAY_CALL


@pytest.mark.parametrize(
    "method",
    [
        "/minedraft.v1.Adminx/GetStatus",
        "/minedraft.v1.Admin/GetStatu",
        "/minedraft.v1.Admin/GetStatus/",
        "/minedraft.v1.Admin/Get",
        "/minedraft.v1.Admin/",
        "minedraft.v1.Admin",
        "",
    ],
)
def test_what_nobody_thought_of_nobody_may_call(method):
    assert allowed_roles(method) == frozenset()


def test_who_may_call_what():
    by_role = {
        role.value: {method for method, allowed in POLICY.items() if role in allowed}
        for role in Role
    }
    assert by_role == MAY_CALL


def test_a_gateway_generates_and_reads_and_changes_nothing():
    methods = {method for method, allowed in POLICY.items() if Role.GATEWAY in allowed}
    generation = {method for method in POLICY if "v1.Generation/" in method}
    assert methods == generation | {m for m in POLICY if "v1.Admin/Get" in m}


def test_who_may_read_may_change_nothing():
    assert MAY_CALL["monitor"] == {
        method for method in MAY_CALL["admin"] if "/Get" in method or "Reflection" in method
    }


@pytest.mark.parametrize(
    ("auth_context", "roles"),
    [
        ({"peer_uri": [b"minedraft:role:drafter"]}, {Role.DRAFTER}),
        (
            {"peer_uri": [b"minedraft:role:admin", b"minedraft:role:client"]},
            {Role.ADMIN, Role.CLIENT},
        ),
        ({"peer_dns": [b"localhost", b"drafter.role.minedraft"]}, {Role.DRAFTER}),
        ({"x509_common_name": [b"minedraft:role:client"]}, {Role.CLIENT}),
        ({"x509_common_name": [b"admin"]}, set()),
        ({"peer_dns": [b"admin.role.minedraft.evil.org", b"admin"]}, set()),
        ({"peer_uri": [b"spiffe://x/minedraft:role:admin", b"minedraft:role:ADMIN"]}, set()),
        ({"peer_uri": [b"minedraft:role:"], "x509_common_name": [b"minedraft:role:admin"]}, set()),
        ({"peer_uri": [b"\xff\xfe"]}, set()),
        # A name of another kind is no role, whatever it looks like.
        (
            {"peer_email": [b"minedraft:role:admin"], "x509_subject": [b"minedraft:role:admin"]},
            set(),
        ),
        ({}, set()),
    ],
)
def test_roles_stand_in_a_certificates_names_exactly(auth_context, roles):
    assert roles_of_certificate(auth_context) == roles


def test_the_common_name_counts_only_without_a_role_elsewhere():
    context = {
        "peer_uri": [b"minedraft:role:drafter"],
        "x509_common_name": [b"minedraft:role:admin"],
    }
    assert roles_of_certificate(context) == {Role.DRAFTER}
