"""How pods come, prove themselves and go: rollouts, probes, drain, disruption."""

from __future__ import annotations

import dataclasses

import pytest

from minedraft.link.options import LinkOptions
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.config import VerifierConfig
from minedraft.transport.health import HealthServer
from tests.deploy.rendered import OVERLAYS, ROLES, WORKERS, env, rendered

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
each_role = pytest.mark.parametrize("role", ROLES)

CONFIGS = {
    "coordinator": CoordinatorConfig,
    "drafter": DrafterConfig,
    "verifier": VerifierConfig,
}


@each_overlay
def test_the_verifier_has_a_name_that_lasts_and_the_others_are_interchangeable(overlay):
    found = rendered(overlay)
    kinds = {role: found.workload(role)["kind"] for role in ROLES}
    assert kinds == {
        "coordinator": "Deployment",
        "drafter": "Deployment",
        "verifier": "StatefulSet",
    }
    assert found.workload("verifier")["spec"]["serviceName"] == "verifier"


@each_overlay
def test_no_rollout_needs_a_second_device(overlay):
    strategy = rendered(overlay).workload("drafter")["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
    assert rendered(overlay).workload("verifier")["spec"]["updateStrategy"] == {
        "type": "RollingUpdate"
    }


@each_overlay
def test_there_are_never_two_coordinators(overlay):
    spec = rendered(overlay).workload("coordinator")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


@each_overlay
@each_role
def test_selectors_choose_their_own_pods_and_no_others(overlay, role):
    found = rendered(overlay)
    selector = found.workload(role)["spec"]["selector"]["matchLabels"]
    for other in ROLES:
        labels = found.workload(other)["spec"]["template"]["metadata"]["labels"]
        assert (selector.items() <= labels.items()) == (other == role)
        assert labels["app.kubernetes.io/name"] == "minedraft"


@each_overlay
@each_role
def test_the_grace_of_a_pod_exceeds_its_pause_and_its_drain(overlay, role):
    pod, main = rendered(overlay).pod(role), rendered(overlay).main(role)
    pause_s = main["lifecycle"]["preStop"]["sleep"]["seconds"]
    (default,) = (f.default for f in dataclasses.fields(CONFIGS[role]) if f.name == "grace_s")
    drain_s = float(env(main).get(f"MINEDRAFT_{role.upper()}_GRACE_S", default))
    # A process with a gloo link open leaves only when the link's last operation is over.
    link_s = LinkOptions().op_timeout_s if role in WORKERS else 0
    assert pause_s > 0
    assert pod["terminationGracePeriodSeconds"] >= pause_s + drain_s + link_s + 10


@each_overlay
@each_role
def test_probes_ask_the_health_port_over_grpc(overlay, role):
    main = rendered(overlay).main(role)
    (health,) = (p["containerPort"] for p in main["ports"] if p["name"] == "health")
    assert health not in {p["containerPort"] for p in main["ports"] if p["name"] != "health"}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert main[name]["grpc"]["port"] == health
        assert "initialDelaySeconds" not in main[name]
    assert main["startupProbe"]["grpc"]["service"] == ""
    assert main["livenessProbe"]["grpc"]["service"] == ""


@each_overlay
@each_role
def test_readiness_is_fast_and_liveness_is_slow(overlay, role):
    main = rendered(overlay).main(role)
    ready, live = main["readinessProbe"], main["livenessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] <= 5
    # The service itself says it is dead when its loop has not turned for this long.
    dead_s = HealthServer.__init__.__kwdefaults__["max_heartbeat_age_s"]
    assert live["periodSeconds"] * live["failureThreshold"] >= dead_s
    assert live["timeoutSeconds"] >= 5


@each_overlay
@pytest.mark.parametrize("role", WORKERS)
def test_loading_a_model_has_twenty_minutes(overlay, role):
    probe = rendered(overlay).main(role)["startupProbe"]
    load_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert load_s >= 1200
    if role == "drafter":
        assert rendered(overlay).workload(role)["spec"]["progressDeadlineSeconds"] > load_s


@each_overlay
@each_role
def test_disruption_is_bounded_and_never_blocks_a_drain(overlay, role):
    found = rendered(overlay)
    budget = found.find("PodDisruptionBudget", role)["spec"]
    assert budget["maxUnavailable"] == 1
    assert "minAvailable" not in budget
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    labels = found.workload(role)["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()


@each_overlay
def test_the_choice_of_the_drafter_is_followed_not_rolled_out(overlay):
    found = rendered(overlay)
    assert found.find("ConfigMap", "minedraft-drafter-choice")  # no hash in its name
    pod = found.pod("coordinator")
    (follower,) = (c for c in pod["containers"] if c["name"] == "follow-drafter-choice")
    (mount,) = (m for m in follower["volumeMounts"] if m["name"] == "choice")
    assert mount["readOnly"] is True
    assert env(follower)["CHOICE_FILE"] == f"{mount['mountPath']}/draft_model"
    (volume,) = (v for v in pod["volumes"] if v["name"] == "choice")
    assert volume["configMap"]["name"] == "minedraft-drafter-choice"
    # To follow links of models it sees what the drafters see, where they see it.
    models = {"name": "models", "mountPath": "/models", "readOnly": True}
    assert models in follower["volumeMounts"]
    assert models in found.main("drafter")["volumeMounts"]


@each_overlay
def test_a_drafter_that_restarts_loads_the_choice_of_the_moment(overlay):
    (model,) = (
        each
        for each in rendered(overlay).main("drafter")["env"]
        if each["name"] == "MINEDRAFT_DRAFTER_MODEL"
    )
    reference = model["valueFrom"]["configMapKeyRef"]
    data = rendered(overlay).find("ConfigMap", reference["name"])["data"]
    roots = env(rendered(overlay).main("drafter"))["MINEDRAFT_DRAFTER_MODEL_ROOTS"]
    assert data[reference["key"]].startswith(f"{roots}/")
