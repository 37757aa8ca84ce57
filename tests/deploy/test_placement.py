"""Where pods go: nodes by product and number of devices, the drafter near the verifier."""

from __future__ import annotations

import pytest

from tests.deploy.rendered import OVERLAYS, ROLES, WORKERS, env, rendered

GPU = "nvidia.com/gpu"
GPU_OVERLAYS = ("one-node", "two-node")


def node_terms(overlay, role):
    affinity = rendered(overlay).pod(role)["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {each["key"]: each for each in term["matchExpressions"]}


@pytest.mark.parametrize("overlay", GPU_OVERLAYS)
@pytest.mark.parametrize("role", WORKERS)
def test_workers_go_to_nodes_of_a_named_product_with_enough_devices(overlay, role):
    terms = node_terms(overlay, role)
    assert terms["nvidia.com/gpu.product"]["operator"] == "In"
    assert terms["nvidia.com/gpu.product"]["values"]
    count = terms["nvidia.com/gpu.count"]
    assert count["operator"] == "Gt"
    wanted = rendered(overlay).main(role)["resources"]["limits"][GPU]
    together = sum(rendered(overlay).main(r)["resources"]["limits"][GPU] for r in WORKERS)
    assert int(count["values"][0]) + 1 >= (together if overlay == "one-node" else wanted)


@pytest.mark.parametrize("overlay", GPU_OVERLAYS)
def test_the_verifier_has_a_device_a_rank_and_the_drafter_one(overlay):
    variables = env(rendered(overlay).main("verifier"))
    assert (variables["MINEDRAFT_VERIFIER_TP_SIZE"], variables["MINEDRAFT_VERIFIER_DEVICE"]) == (
        "4",
        "cuda",
    )
    assert rendered(overlay).main("verifier")["resources"]["limits"][GPU] == 4
    assert rendered(overlay).main("drafter")["resources"]["limits"][GPU] == 1
    assert GPU not in rendered(overlay).main("coordinator")["resources"]["limits"]


@pytest.mark.parametrize("overlay", GPU_OVERLAYS)
@pytest.mark.parametrize("role", WORKERS)
def test_workers_tolerate_the_taint_of_device_nodes(overlay, role):
    toleration = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
    assert toleration in rendered(overlay).pod(role)["tolerations"]


def test_two_nodes_are_two_kinds_of_node():
    products = [
        set(node_terms("two-node", role)["nvidia.com/gpu.product"]["values"]) for role in WORKERS
    ]
    assert not products[0] & products[1]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_drafter_prefers_the_verifiers_node_and_does_not_insist(overlay):
    affinity = rendered(overlay).pod("drafter")["affinity"]["podAffinity"]
    assert affinity.keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}
    terms = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    keys = [each["podAffinityTerm"]["topologyKey"] for each in terms]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert terms[0]["weight"] > terms[1]["weight"]
    labels = rendered(overlay).workload("verifier")["spec"]["template"]["metadata"]["labels"]
    for each in terms:
        wanted = each["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert wanted.items() <= labels.items()


def test_the_cpu_demo_asks_for_no_device():
    for role in ROLES:
        pod = rendered("cpu-demo").pod(role)
        assert "tolerations" not in pod
        assert "nodeAffinity" not in (pod.get("affinity") or {})
        assert rendered("cpu-demo").main(role)["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_have_the_priority_class_that_is_there(overlay):
    (priority,) = rendered(overlay).of("PriorityClass")
    assert priority["value"] > 0
    assert priority["globalDefault"] is False
    for role in ROLES:
        assert rendered(overlay).pod(role)["priorityClassName"] == priority["metadata"]["name"]
