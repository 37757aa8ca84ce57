"""Manifests and code agree: variables, ports, names of services, values that the code accepts."""

from __future__ import annotations

import importlib
from dataclasses import MISSING, fields, is_dataclass

import pytest
import typer.main

from minedraft.cli import config_options
from minedraft.cli.main import app
from minedraft.security.roles import POLICY
from tests.deploy.rendered import EXTRA_COMPONENTS, OVERLAYS, ROLES, WORKERS, env, rendered

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
each_role = pytest.mark.parametrize("role", ROLES)
SERVICES = {
    "coordinator": "minedraft.v1.Generation",
    "drafter": "minedraft.v1.Drafter",
    "verifier": "minedraft.v1.Verifier",
}


def config_class(role):
    module = importlib.import_module(f"minedraft.services.{role}.config")
    return getattr(module, f"{role.capitalize()}Config")


def options(role):
    """Variable -> parameter, of a command as typer builds it."""
    group = typer.main.get_command(app)
    context = group.make_context("minedraft", [role], resilient_parsing=True)
    command = group.get_command(context, role)
    found = {}
    for parameter in command.params:
        names = parameter.envvar or f"MINEDRAFT_{role}_{parameter.name}".upper()
        for name in [names] if isinstance(names, str) else names:
            found[name] = parameter
    return found


def given(overlay, role):
    variables = env(rendered(overlay).main(role))
    return {name: value for name, value in variables.items() if name.startswith("MINEDRAFT_")}


@each_overlay
@each_role
def test_every_variable_is_an_option_of_the_command(overlay, role):
    main = rendered(overlay).main(role)
    assert main["args"] == [role]
    assert "command" not in main, "the image's entry point is the command line"
    assert given(overlay, role).keys() - options(role).keys() == set()


@each_overlay
@each_role
def test_the_code_accepts_the_values(overlay, role, monkeypatch):
    for name, value in given(overlay, role).items():
        monkeypatch.setenv(name, "/models/draft" if value == "<from>" else value)
    group = typer.main.get_command(app)
    context = group.make_context("minedraft", [role], resilient_parsing=True)
    command = group.get_command(context, role)
    values = dict(command.make_context(role, [], parent=context).params)
    config = config_options.build(config_class(role), values)
    assert config.listen == f"0.0.0.0:{default_port(role)}"


def default_port(role):
    (listen,) = (f.default for f in fields(config_class(role)) if f.name == "listen")
    return int(listen.rpartition(":")[2])


@each_overlay
@each_role
def test_ports_are_those_the_code_listens_on(overlay, role):
    ports = {p["name"]: p["containerPort"] for p in rendered(overlay).main(role)["ports"]}
    variables = given(overlay, role)
    assert variables[f"MINEDRAFT_{role.upper()}_LISTEN"] == f"0.0.0.0:{ports['grpc']}"
    assert variables[f"MINEDRAFT_{role.upper()}_HEALTH_LISTEN"] == f"0.0.0.0:{ports['health']}"
    assert ports["grpc"] == default_port(role)
    (service,) = rendered(overlay).find("Service", role)["spec"]["ports"]
    assert service["port"] == ports["grpc"]


@each_overlay
def test_the_coordinator_dials_names_and_ports_that_are_there(overlay):
    variables, found = given(overlay, "coordinator"), rendered(overlay)
    (verifier_port,) = found.find("Service", "verifier")["spec"]["ports"]
    stateful = found.workload("verifier")
    host = f"{stateful['metadata']['name']}-0.{stateful['spec']['serviceName']}"
    assert variables["MINEDRAFT_COORDINATOR_VERIFIER"] == f"{host}:{verifier_port['port']}"
    for address in variables["MINEDRAFT_COORDINATOR_DRAFTERS"].split(","):
        name, _, port = address.removeprefix("dns:").rpartition(":")
        (service_port,) = found.find("Service", name)["spec"]["ports"]
        assert int(port) == service_port["port"]


@each_overlay
@each_role
def test_readiness_asks_for_a_service_of_the_protocol(overlay, role):
    asked = rendered(overlay).main(role)["readinessProbe"]["grpc"]["service"]
    assert asked == SERVICES[role]
    assert asked in {method.split("/")[1] for method in POLICY}


@each_overlay
@pytest.mark.parametrize("role", WORKERS)
def test_a_link_binds_the_pods_own_address(overlay, role):
    main = rendered(overlay).main(role)
    assert given(overlay, role)[f"MINEDRAFT_{role.upper()}_LINK_BIND_HOST"] == "$(POD_IP)"
    (pod_ip,) = (each for each in main["env"] if each["name"] == "POD_IP")
    assert pod_ip["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    # $(POD_IP) is expanded only in variables that come after it.
    names = [each["name"] for each in main["env"]]
    assert names.index("POD_IP") < names.index(f"MINEDRAFT_{role.upper()}_LINK_BIND_HOST")


@pytest.mark.parametrize("overlay", ["one-node", "two-node"])
@each_role
def test_connections_are_under_mutual_tls(overlay, role):
    variables = given(overlay, role)
    assert "MINEDRAFT_INSECURE" not in variables
    directory = "/etc/minedraft/tls"
    assert variables["MINEDRAFT_TLS_CERT"] == f"{directory}/tls.crt"
    assert variables["MINEDRAFT_TLS_KEY"] == f"{directory}/tls.key"
    assert variables["MINEDRAFT_TLS_CA"] == f"{directory}/ca.crt"
    (mount,) = (m for m in rendered(overlay).main(role)["volumeMounts"] if m["name"] == "tls")
    assert (mount["mountPath"], mount["readOnly"]) == (directory, True)
    (volume,) = (v for v in rendered(overlay).pod(role)["volumes"] if v["name"] == "tls")
    assert volume["secret"] == {"secretName": f"minedraft-{role}-tls", "defaultMode": 0o440}


def test_only_the_demo_says_insecure():
    said = {o for o in OVERLAYS for role in ROLES if "MINEDRAFT_INSECURE" in given(o, role)}
    assert said == {"cpu-demo"}


@each_overlay
def test_no_secret_is_in_a_variable(overlay):
    for role in ROLES:
        for container in rendered(overlay, EXTRA_COMPONENTS if overlay != "cpu-demo" else ()).pod(
            role
        )["containers"]:
            for each in container.get("env", []):
                assert "secretKeyRef" not in each.get("valueFrom", {})
            assert "envFrom" not in container


def test_the_options_of_this_test_are_those_of_the_config():
    for role in ROLES:
        own, nested = set(), {f"MINEDRAFT_{role}_SECURITY".upper()}
        for field in fields(config_class(role)):
            name = f"MINEDRAFT_{role}_{field.name}".upper()
            is_nested = field.default_factory is not MISSING and is_dataclass(field.default_factory)
            (nested if is_nested else own).add(name)
        assert own - nested <= options(role).keys()
        assert not nested & options(role).keys()
        assert "MINEDRAFT_TLS_CERT" in options(role)
