"""What every pod must be: restricted, bounded, quiet, with its models read-only."""

from __future__ import annotations

import pytest
import yaml

import minedraft
from minedraft.services.coordinator.text.child import MEMORY_BYTES
from minedraft.services.coordinator.text.pool import NUM_WORKERS
from tests.deploy.rendered import EXTRA_COMPONENTS, K8S, OVERLAYS, ROLES, WORKERS, rendered

EVERYTHING = [(name, ()) for name in OVERLAYS] + [("one-node", EXTRA_COMPONENTS)]
each_rendering = pytest.mark.parametrize(("overlay", "components"), EVERYTHING)


def pod_specs(overlay, components):
    specs = [w["spec"]["template"]["spec"] for w in rendered(overlay, components).workloads]
    assert len(specs) == len(ROLES)
    loader = yaml.safe_load((K8S / "model-loader.yaml").read_text())
    return [*specs, loader["spec"]]


@each_rendering
def test_pods_meet_the_restricted_standard(overlay, components):
    for spec in pod_specs(overlay, components):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == 65532
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in spec["containers"] + spec.get("initContainers", []):
            inner = container["securityContext"]
            assert inner["allowPrivilegeEscalation"] is False
            assert inner["readOnlyRootFilesystem"] is True
            assert inner["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in inner
            assert not any("hostPort" in port for port in container.get("ports", []))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_namespace_enforces_the_restricted_standard(overlay):
    (namespace,) = rendered(overlay).of("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for item in rendered(overlay).objects:
        if item["kind"] not in {"Namespace", "PriorityClass"}:
            assert item["metadata"]["namespace"] == namespace["metadata"]["name"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_safe_sysctls_are_set(overlay):
    for role in WORKERS:
        sysctls = rendered(overlay).pod(role)["securityContext"]["sysctls"]
        assert sysctls == [{"name": "net.ipv4.ip_local_port_range", "value": "40000 40999"}]


@each_rendering
def test_pods_hold_no_token_and_learn_nothing_of_the_cluster(overlay, components):
    for spec in pod_specs(overlay, components):
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
    accounts = {
        a["metadata"]["name"]: a for a in rendered(overlay, components).of("ServiceAccount")
    }
    for role in ROLES:
        account = accounts[rendered(overlay, components).pod(role)["serviceAccountName"]]
        assert account["automountServiceAccountToken"] is False
    assert not rendered(overlay, components).of("Role")
    assert not rendered(overlay, components).of("ClusterRole")


@each_rendering
def test_memory_is_bounded_and_cpu_is_not(overlay, components):
    for spec in pod_specs(overlay, components):
        for container in spec["containers"]:
            resources = container["resources"]
            assert resources["requests"].keys() >= {"cpu", "memory"}
            assert "memory" in resources["limits"]
            # A CPU limit stops threads in the middle of a step: NCCL's proxy threads above all.
            assert "cpu" not in resources["limits"]


@each_rendering
def test_images_are_named_in_full_with_a_version(overlay, components):
    for role in ROLES:
        for container in rendered(overlay, components).pod(role)["containers"]:
            name, _, tag = container["image"].rpartition(":")
            assert "/" in name, f"{container['image']}: the overlay does not say where it is"
            assert tag.startswith(f"{minedraft.__version__}-")
            assert container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_models_are_read_only_and_scratch_is_bounded(overlay):
    for role in ROLES:
        pod, main = rendered(overlay).pod(role), rendered(overlay).main(role)
        mounts = {mount["name"]: mount for mount in main["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert mounts["models"]["mountPath"] == "/models"
        assert mounts["models"]["readOnly"] is True
        assert volumes["models"]["persistentVolumeClaim"]["readOnly"] is True
        assert mounts["tmp"]["mountPath"] == "/tmp"
        for volume in pod["volumes"]:
            if "emptyDir" in volume:
                assert "sizeLimit" in volume["emptyDir"]
            elif "persistentVolumeClaim" in volume:
                assert rendered(overlay).find(
                    "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
                )


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("role", WORKERS)
def test_shared_memory_is_a_bounded_tmpfs_within_the_memory_limit(overlay, role):
    pod, main = rendered(overlay).pod(role), rendered(overlay).main(role)
    (volume,) = (v for v in pod["volumes"] if v["name"] == "shm")
    assert volume["emptyDir"]["medium"] == "Memory"
    assert gib(volume["emptyDir"]["sizeLimit"]) <= gib(main["resources"]["limits"]["memory"]) / 2
    assert {"name": "shm", "mountPath": "/dev/shm"} in main["volumeMounts"]


def gib(quantity):
    assert quantity.endswith("Gi")
    return int(quantity.removesuffix("Gi"))


@each_rendering
def test_configuration_is_mounted_as_directories(overlay, components):
    for spec in pod_specs(overlay, components):
        for container in spec["containers"]:
            for mount in container.get("volumeMounts", []):
                # A subPath would show the file as it was when the pod started, for ever.
                assert not {"subPath", "subPathExpr"} & mount.keys()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_volumes_and_mounts_name_each_other(overlay):
    for role in ROLES:
        pod = rendered(overlay).pod(role)
        volumes = {volume["name"] for volume in pod["volumes"]}
        mounted = {m["name"] for c in pod["containers"] for m in c.get("volumeMounts", [])}
        assert volumes == mounted


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_texts_may_take_does_not_end_the_coordinator(overlay):
    resources = rendered(overlay).main("coordinator")["resources"]
    own_bytes = quantity(resources["requests"]["memory"])
    assert quantity(resources["limits"]["memory"]) >= NUM_WORKERS * MEMORY_BYTES + 2 * own_bytes


def quantity(text: str) -> int:
    return int(text.removesuffix("Gi")) << 30
