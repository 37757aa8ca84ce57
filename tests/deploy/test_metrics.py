"""The board, the alerts and the autoscaler read metrics that exist."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
import yaml

from minedraft.admin import BatchStatus, ShapeStatus, Status, WorkerStatus
from minedraft.plans import WorkerIdentity
from minedraft.services.coordinator.core.counters import Counters
from minedraft.services.coordinator.telemetry.exposition import Exposition
from minedraft.services.coordinator.telemetry.observed import Observed
from minedraft.services.coordinator.telemetry.timeline import Timeline
from minedraft.types import Mode, ModelInfo
from tests.deploy.rendered import K8S, ROOT

IDENTITY = WorkerIdentity("id", 1, 1, 1, "0.0")
MODEL = ModelInfo("m", 100, 100, "f" * 64, "float32")
BOARD = json.loads((ROOT / "deploy" / "grafana" / "minedraft.json").read_text())
ALERTS = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
SCALER = yaml.safe_load((K8S / "components" / "keda" / "scaledobject.yaml").read_text())
QUERIES = {
    **{
        f"board: {panel['title']}, {target['refId']}": target["expr"]
        for panel in BOARD["panels"]
        for target in panel["targets"]
    },
    **{rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]},
    **{
        f"keda {number}": trigger["metadata"]["query"]
        for number, trigger in enumerate(SCALER["spec"]["triggers"])
    },
}


@pytest.fixture
async def text():
    async def status():
        return Status(
            IDENTITY,
            Mode(2, 8, 4),
            batches=(BatchStatus(0, {"ready": 1}),),
            workers=(
                WorkerStatus("verifier", "v:1", True, IDENTITY, MODEL),
                WorkerStatus("drafter", "d:1", True, IDENTITY, MODEL, 3),
            ),
            counters=Counters().snapshot(),
            shape=ShapeStatus(2, 4),
        )

    return await Exposition(Observed(), Timeline()).text(status)


def samples(text: str) -> dict[str, set[str]]:
    """Names of the labels by name of the sample."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{") if "{" in line else (line.split()[0], "", "")
            found[name] = set(re.findall(r'(\w+)="', rest))
    return found


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
async def test_a_query_reads_samples_that_exist_and_labels_that_they_have(query, text):
    there = samples(text)
    named = re.findall(r"\b((?:minedraft_|vllm:)\w+)(?:\{(\w+)=)?", query)
    assert named
    for name, label in named:
        assert name in there, query
        assert not label or label in there[name]
    for label in re.findall(r"by \((\w+)\)", query):
        assert all(label in there[name] for name, _ in named)


def test_a_legend_names_labels_that_its_metric_has():
    legends = [target["legendFormat"] for panel in BOARD["panels"] for target in panel["targets"]]
    named = {label for legend in legends for label in re.findall(r"\{\{(\w+)\}\}", legend)}
    assert named == {"reason", "position", "batch", "role", "address", "result"}


def test_panels_do_not_lie_on_one_another():
    places = sorted(
        (panel["gridPos"]["y"], panel["gridPos"]["x"], panel["gridPos"]["w"])
        for panel in BOARD["panels"]
    )
    for (y, x, width), (next_y, next_x, _) in pairwise(places):
        assert next_y > y or next_x >= x + width
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_every_alert_says_what_is_wrong_and_the_manual_names_it():
    manual = (ROOT / "docs" / "operations.md").read_text()
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["labels"]["severity"] in {"critical", "warning"}
            assert f"`{rule['alert']}`" in manual
