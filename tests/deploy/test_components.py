"""The components that a site adds to a copy of an overlay, alone and all at once."""

from __future__ import annotations

import importlib.util
import re

import pytest

from minedraft.services.coordinator.config import CoordinatorConfig
from tests.deploy.rendered import EXTRA_COMPONENTS, K8S, WORKERS, rendered

GPU = "nvidia.com/gpu"


def load_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_component_is_in_an_overlay_or_tested_beside_one():
    there = {path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml")}
    assert there == {"gpu", "mtls", "rdma", *EXTRA_COMPONENTS}


@pytest.mark.parametrize("component", EXTRA_COMPONENTS)
def test_a_component_renders_alone(component):
    assert rendered("one-node", (component,)).objects


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
    (exporter,) = (
        c for c in found.pod("coordinator")["containers"] if c["name"] == "status-exporter"
    )
    (port,) = exporter["ports"]
    assert port["name"] == endpoint["port"]
    (rule,) = found.find("NetworkPolicy", "metrics")["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": port["containerPort"]}]


def test_keda_scales_drafters_on_metrics_that_the_exporter_has():
    found = rendered("one-node", ("podmonitor", "keda"))
    scaler = found.find("ScaledObject", "drafter")["spec"]
    target = scaler["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", "drafter")
    assert found.workload("drafter")["kind"] == "Deployment"
    source = (K8S / "components" / "podmonitor" / "status_exporter.py").read_text()
    exporter = load_script(K8S / "components" / "podmonitor" / "status_exporter.py")
    for trigger in scaler["triggers"]:
        named = set(re.findall(rf"\b{exporter.PREFIX}(\w+)", trigger["metadata"]["query"]))
        assert named
        for name in named:
            assert f'"{name}"' in source
        assert trigger["metadata"]["ignoreNullValues"] == "false"


def test_keda_and_an_apply_do_not_fight_over_the_number_of_drafters():
    assert "replicas" not in rendered("one-node", ("keda",)).workload("drafter")["spec"]
    assert rendered("one-node").workload("drafter")["spec"]["replicas"] == 1


def test_keda_never_asks_for_more_drafters_than_there_are_batches():
    scaler = rendered("one-node", ("keda",)).find("ScaledObject", "drafter")["spec"]
    assert scaler["maxReplicaCount"] <= CoordinatorConfig().num_batches
    behavior = scaler["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 300
