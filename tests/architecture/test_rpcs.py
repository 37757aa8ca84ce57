"""Every RPC of the protocol is served and called, and the public ones have a client method."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re

import pytest

import minedraft
from minedraft.security.roles import POLICY
from tests.architecture.sources import parsed, source_files

PUBLIC_SERVICES = {"Generation", "Admin"}


def modules(package: str, path: list[str]) -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return [name for name in found if not name.endswith("__main__")]


def rpcs() -> list[tuple[str, str]]:
    """(service, RPC) of every service in minedraft.v1."""
    from minedraft import v1

    generated = [importlib.import_module(name) for name in modules("minedraft.v1", v1.__path__)]
    files = [module.DESCRIPTOR for module in generated if hasattr(module, "DESCRIPTOR")]
    return sorted(
        (service.name, method.name)
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    )


def subclasses(cls: type) -> set[type]:
    direct = set(cls.__subclasses__())
    return direct.union(*map(subclasses, direct))


@pytest.fixture(scope="module")
def servicers() -> dict[str, set[type]]:
    """Our classes behind each service, by the service's name."""
    from minedraft import v1

    for name in modules("minedraft", minedraft.__path__):
        importlib.import_module(name)
    found = {}
    for name in modules("minedraft.v1", v1.__path__):
        for key, base in vars(importlib.import_module(name)).items():
            if key.endswith("Servicer"):
                ours = {c for c in subclasses(base) if c.__module__.startswith("minedraft.")}
                found[key.removesuffix("Servicer")] = ours
    return found


def method_name(rpc: str) -> str:
    """GetModelInfo is client.model_info(), SetMode is client.set_mode()."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", rpc).lower().removeprefix("get_")


def test_the_protocol_has_the_services_we_know():
    assert {service for service, _ in rpcs()} >= PUBLIC_SERVICES | {"Drafter", "Verifier"}


@pytest.mark.parametrize(("service", "rpc"), rpcs())
def test_an_rpc_has_a_servicer_method(service, rpc, servicers):
    assert any(rpc in vars(cls) for cls in servicers[service])


@pytest.mark.parametrize(("service", "rpc"), rpcs())
def test_an_rpc_is_called_from_our_code(service, rpc):
    nodes = (node for path in source_files() for node in ast.walk(parsed(path)))
    assert any(isinstance(node, ast.Attribute) and node.attr == rpc for node in nodes), service


def test_the_table_of_roles_has_a_row_for_every_rpc_and_no_other():
    reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    ours = {f"/minedraft.v1.{service}/{rpc}" for service, rpc in rpcs()}
    assert set(POLICY) == {*ours, reflection}


@pytest.mark.parametrize("rpc", [rpc for service, rpc in rpcs() if service in PUBLIC_SERVICES])
@pytest.mark.parametrize("client", ["Client", "SyncClient"])
def test_a_public_rpc_has_a_client_method(client, rpc):
    assert callable(getattr(getattr(minedraft, client), method_name(rpc), None)), method_name(rpc)
