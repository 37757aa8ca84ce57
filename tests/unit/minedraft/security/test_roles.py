from __future__ import annotations

import importlib
import pkgutil

import pytest

from minedraft import v1
from minedraft.security.roles import POLICY, Role, allowed_roles, roles_of_certificate


def services() -> set[str]:
    modules = [
        importlib.import_module(f"minedraft.v1.{m.name}") for m in pkgutil.iter_modules(v1.__path__)
    ]
    files = [module.DESCRIPTOR for module in modules if hasattr(module, "DESCRIPTOR")]
    return {service.full_name for file in files for service in file.services_by_name.values()}


def test_the_table_names_every_service_of_the_protocol():
    assert set(POLICY) == services() | {"grpc.reflection.v1alpha.ServerReflection"}


def test_what_nobody_thought_of_nobody_may_call():
    assert allowed_roles("/minedraft.v1.Adminx/GetStatus") == frozenset()
    assert allowed_roles("minedraft") == frozenset()


@pytest.mark.parametrize(
    ("service", "roles"),
    [
        ("Generation", {"client", "admin", "coordinator"}),
        ("Admin", {"admin"}),
        ("Verifier", {"coordinator"}),
        ("Drafter", {"coordinator"}),
        ("TokenLink", {"drafter"}),
    ],
)
def test_who_may_call_what(service, roles):
    assert {r.value for r in allowed_roles(f"/minedraft.v1.{service}/Anything")} == roles


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
