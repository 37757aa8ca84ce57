"""Who may talk to whom: everything is denied but what the architecture draws."""

from __future__ import annotations

import pytest

from tests.deploy.rendered import OVERLAYS, ROLES, WORKERS, rendered

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
LINK = {"protocol": "TCP", "port": 40000, "endPort": 40999}
PORTS = {"coordinator": 50050, "drafter": 50051, "verifier": 50052}


def allowed(overlay, direction, role):
    """(peer, port or range) that policies allow a role; a peer is its role, or what else it is."""
    labels = rendered(overlay).workload(role)["spec"]["template"]["metadata"]["labels"]
    found = set()
    for policy in rendered(overlay).of("NetworkPolicy"):
        spec = policy["spec"]
        selector = spec["podSelector"].get("matchLabels", {})
        if (
            not selector.items() <= labels.items()
            or direction.capitalize() not in spec["policyTypes"]
        ):
            continue
        for rule in spec.get(direction, []):
            for peer in rule["to" if direction == "egress" else "from"]:
                for port in rule["ports"]:
                    found.add((peer_name(peer), (port["port"], port.get("endPort"))))
    return found


def peer_name(peer):
    labels = peer.get("podSelector", {}).get("matchLabels", {})
    if "namespaceSelector" not in peer:
        return labels["minedraft.io/role"]
    return next(iter(labels.items())) if labels else "a namespace"


@each_overlay
def test_what_is_not_allowed_is_denied(overlay):
    deny = rendered(overlay).find("NetworkPolicy", "default-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@each_overlay
def test_the_graph_is_that_of_the_architecture(overlay):
    dns = {(("k8s-app", "kube-dns"), (53, None))}
    link = (40000, 40999)
    assert allowed(overlay, "ingress", "coordinator") == {
        (("minedraft.io/client", "true"), (50050, None))
    }
    assert allowed(overlay, "egress", "coordinator") == dns | {
        ("drafter", (50051, None)),
        ("verifier", (50052, None)),
    }
    assert allowed(overlay, "ingress", "drafter") == {
        ("coordinator", (50051, None)),
        ("verifier", link),
    }
    assert allowed(overlay, "egress", "drafter") == dns | {
        ("verifier", (50052, None)),
        ("verifier", link),
    }
    assert allowed(overlay, "ingress", "verifier") == {
        ("coordinator", (50052, None)),
        ("drafter", (50052, None)),
        ("drafter", link),
    }
    assert allowed(overlay, "egress", "verifier") == dns | {("drafter", link)}


@each_overlay
def test_every_flow_is_allowed_at_both_ends(overlay):
    for role in ROLES:
        for peer, port in allowed(overlay, "egress", role):
            if peer in ROLES:
                assert (role, port) in allowed(overlay, "ingress", peer)


@each_overlay
@pytest.mark.parametrize("role", WORKERS)
def test_the_range_of_the_policy_is_that_of_the_kernel(overlay, role):
    (sysctl,) = rendered(overlay).pod(role)["securityContext"]["sysctls"]
    low, high = map(int, sysctl["value"].split())
    assert (low, high) == (LINK["port"], LINK["endPort"])
    listening = {p["containerPort"] for p in rendered(overlay).main(role)["ports"]}
    assert not [port for port in listening if low <= port <= high]


@each_overlay
@pytest.mark.parametrize("role", ROLES)
def test_services_expose_the_control_port_alone(overlay, role):
    service = rendered(overlay).find("Service", role)["spec"]
    (port,) = service["ports"]
    assert (port["port"], port["targetPort"]) == (PORTS[role], "grpc")
    # HTTP/2 in the clear, which a gateway would speak too: not where services want TLS.
    assert port.get("appProtocol") == ("kubernetes.io/h2c" if overlay == "cpu-demo" else None)
    # Headless where the peer dials pods; the coordinator is one address.
    assert service.get("clusterIP") == (None if role == "coordinator" else "None")
    assert "type" not in service
