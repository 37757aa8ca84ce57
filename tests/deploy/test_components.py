"""The components that a site adds to a copy of an overlay, alone and all at once."""

from __future__ import annotations

import importlib.util

import pytest
import yaml

from minedraft.services.coordinator.config import CoordinatorConfig
from tests.deploy.rendered import (
    ADDITIONS,
    EXTRA_COMPONENTS,
    K8S,
    OVERLAYS,
    ROLES,
    WORKERS,
    env,
    rendered,
)

GPU = "nvidia.com/gpu"
HELPER_VARIABLES = {
    "follow-drafter-choice": {"MINEDRAFT_ADDRESS", "CHOICE_FILE", "TLS_DIRECTORY", "HOME"},
}
PAIRS = [(overlay, (name,)) for overlay, names in ADDITIONS.items() for name in names]
TOGETHER = [(overlay, names) for overlay, names in ADDITIONS.items()]
each_addition = pytest.mark.parametrize(("overlay", "components"), PAIRS + TOGETHER)


def load_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_component_is_in_an_overlay_or_tested_beside_one():
    there = {path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml")}
    assert there == {"gpu", "mtls", "rdma", *EXTRA_COMPONENTS}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_component_is_in_an_overlay_or_added_to_it_or_needs_devices(overlay):
    there = {path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml")}
    text = yaml.safe_load((K8S / "overlays" / overlay / "kustomization.yaml").read_text())
    has = {path.rpartition("/")[2] for path in text.get("components", [])}
    assert not has & set(ADDITIONS[overlay])
    left = there - has - set(ADDITIONS[overlay])
    assert left == ({"dra", "rdma"} if overlay == "cpu-demo" else set())


@each_addition
@pytest.mark.parametrize("role", ROLES)
def test_what_an_overlay_says_stays_with_the_service(overlay, components, role):
    before, after = rendered(overlay).main(role), rendered(overlay, components).main(role)
    assert env(before).items() <= env(after).items()
    assert after["args"] == before["args"]
    more = [{"name": "metrics", "containerPort": 9090}]
    added = more if role == "coordinator" and "podmonitor" in components else []
    assert sorted(after["ports"], key=str) == sorted([*before["ports"], *added], key=str)
    # Claims take the place of the plugin's devices; nothing else is taken away.
    gone = {GPU} if "dra" in components and role in WORKERS else set()
    limits = before["resources"]["limits"].keys()
    assert limits - gone <= after["resources"]["limits"].keys()


@each_addition
def test_helpers_get_the_variables_that_they_read_and_no_device(overlay, components):
    pod = rendered(overlay, components).pod("coordinator")
    beside = [*pod["containers"], *pod.get("initContainers", [])]
    helpers = {c["name"]: c for c in beside if c["name"] != "coordinator"}
    assert helpers.keys() == HELPER_VARIABLES.keys()
    for name, container in helpers.items():
        assert env(container).keys() == HELPER_VARIABLES[name]
        assert container["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize("components", [("podmonitor",), ("mtls", "podmonitor")])
def test_the_demo_stays_insecure_for_its_services_alone(components):
    found = rendered("cpu-demo", components)
    for role in ROLES:
        told = [c["name"] for c in found.pod(role)["containers"] if "MINEDRAFT_INSECURE" in env(c)]
        assert told == [role]


@pytest.mark.parametrize("role", WORKERS)
def test_rdma_is_asked_for_on_two_nodes_and_needs_no_capability(role):
    main = rendered("two-node").main(role)
    assert main["resources"]["limits"]["rdma/hca_shared_devices_a"] == 1
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "rdma/hca_shared_devices_a" not in rendered("one-node").main(role)["resources"]["limits"]


@pytest.mark.parametrize("role", WORKERS)
def test_claims_take_the_place_of_the_device_plugin(role):
    found = rendered("one-node", ("dra",))
    pod, main = found.pod(role), found.main(role)
    plugin = rendered("one-node").main(role)["resources"]["limits"][GPU]
    assert GPU not in main["resources"]["limits"]
    (claim,) = pod["resourceClaims"]
    assert main["resources"]["claims"] == [{"name": claim["name"]}]
    template = found.find("ResourceClaimTemplate", claim["resourceClaimTemplateName"])
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == plugin
    assert request["exactly"]["deviceClassName"] == "gpu.nvidia.com"


def test_image_volumes_take_the_place_of_the_claim():
    found = rendered("one-node", ("image-volumes",))
    assert not found.of("PersistentVolumeClaim")
    for role in ("coordinator", *WORKERS):
        (volume,) = (v for v in found.pod(role)["volumes"] if v["name"] == "models")
        assert volume.keys() == {"name", "image"}
        assert "@sha256:" in volume["image"]["reference"]


def test_prometheus_scrapes_a_port_that_is_named_and_allowed():
    found = rendered("one-node", ("podmonitor",))
    monitor = found.find("PodMonitor", "minedraft")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    labels = found.workload("coordinator")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    main = found.main("coordinator")
    (port,) = (each for each in main["ports"] if each["name"] == endpoint["port"])
    assert env(main)["MINEDRAFT_COORDINATOR_METRICS_LISTEN"] == f"0.0.0.0:{port['containerPort']}"
    (rule,) = found.find("NetworkPolicy", "metrics")["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": port["containerPort"]}]


def test_keda_scales_drafters_by_a_query_that_says_when_it_knows_nothing():
    """That its metrics exist is tested with those of the board, in test_metrics.py."""
    found = rendered("one-node", ("podmonitor", "keda"))
    scaler = found.find("ScaledObject", "drafter")["spec"]
    target = scaler["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", "drafter")
    assert found.workload("drafter")["kind"] == "Deployment"
    for trigger in scaler["triggers"]:
        assert trigger["metadata"]["ignoreNullValues"] == "false"


def test_keda_and_an_apply_do_not_fight_over_the_number_of_drafters():
    assert "replicas" not in rendered("one-node", ("keda",)).workload("drafter")["spec"]
    assert rendered("one-node").workload("drafter")["spec"]["replicas"] == 1


def test_keda_never_asks_for_more_drafters_than_there_are_batches():
    scaler = rendered("one-node", ("keda",)).find("ScaledObject", "drafter")["spec"]
    assert scaler["maxReplicaCount"] <= CoordinatorConfig().num_batches
    behavior = scaler["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 300


@pytest.mark.parametrize(
    ("overlay", "link"), [("one-node", "grpc"), ("two-node", "auto"), ("cpu-demo", None)]
)
def test_under_mutual_tls_the_link_is_one_that_speaks_it_unless_nccl_is_the_point(overlay, link):
    assert env(rendered(overlay).main("coordinator")).get("MINEDRAFT_COORDINATOR_LINK") == link
