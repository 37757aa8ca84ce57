from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from minedraft.cli.main import app
from minedraft.services.coordinator.core.cost_table import Bin, CostTable
from minedraft.services.coordinator.core.leg_costs import DraftLeg, VerifyLeg
from minedraft.services.coordinator.core.pair_costs import PairCosts

SMALL = ("--prompt-tokens", "32", "--output-tokens", "32", "--rate", "20")


def plan(*arguments):
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_recommendation_and_its_figures_are_written(tmp_path):
    figures = tmp_path / "new" / "plan.json"
    found = plan(
        "--target", "Qwen3-32B", "--drafters", "0.6B", "--gpus", "5xH100", *SMALL,
        "--json", str(figures),
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    for wanted in (
        "Recommended: ",
        "Runner-up: ",
        "plain",
        "To run",
        "Why",
        "What this rests on",
    ):
        assert wanted in found.stdout
    assert json.loads(figures.read_text())["recommended"]["num_devices"] <= 5


def test_measured_costs_take_the_place_of_the_roofline(tmp_path):
    def table(base, per_token):
        sizes = (1, 8, 64, 512)
        return CostTable([Bin(size, size, 0, base + per_token * size) for size in sizes])

    pair = PairCosts(VerifyLeg(table(20e6, 1e4)), DraftLeg(table(5e6, 1e4), table(5e6, 1e4)))
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(pair.to_json()))
    figures = tmp_path / "plan.json"
    options = ("--target", "Qwen3-32B", "--drafters", "0.6B", "--gpus", "5xH100", *SMALL)
    given = ("--costs", f"0.6B={path}")
    found = plan(*options, *given, "--tp", "4", "--json", str(figures))
    assert found.exit_code == 0, found.output
    document = json.loads(figures.read_text())
    assert document["recommended"]["price"]["verify_ms"] == pytest.approx(20, rel=0.1)
    assert "shared device" not in document  # nobody measured that
    assert "give --tp too" in plan(*options, *given).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "Qwen9", "--gpus", "1xH100"), "'Qwen9': not known"),
        (("--target", "Qwen3-8B", "--gpus", "1xB300"), "'B300' is not known. Known are H100"),
        (("--target", "Qwen3-32B", "--gpus", "1xL40S"), "does not fit"),
        (("--target", "Qwen3-8B", "--gpus", "1xH100", "--rate", "-1"), "rate='-1'"),
        (("--target", "Qwen3-8B", "--gpus", "1xH100", "--tp", "3"), "tp=3"),
        (("--target", "Qwen3-8B", "--gpus", "1xH100", "--costs", "x"), "give --tp too"),
        (
            ("--target", "Qwen3-8B", "--gpus", "1xH100", "--tp", "1", "--costs", "x"),
            "costs='x': want DRAFTER=FILE",
        ),
        (
            ("--target", "Qwen3-8B", "--gpus", "1xH100", "--acceptance", "0.6B=0.5"),
            "is none of the drafters",
        ),
        (
            ("--target", "Qwen3-8B", "--gpus", "2xH100", "--drafters", "0.6B," * 9),
            "drafters: want at most 8, not 9",
        ),
        (("--target", "Qwen3-8B", "--gpus", "1xH100", "--device", "x=1"), "device='x=1'"),
    ],
)
def test_bad_input_ends_in_one_line_that_names_it(arguments, message):
    found = plan(*arguments)
    assert found.exit_code == 1
    assert message in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


def test_a_device_of_ones_own_may_be_given():
    own = ("--device", "B200=180,7700,2250,900")
    found = plan("--target", "Qwen3-8B", "--gpus", "1xB200", *own, *SMALL)
    assert found.exit_code == 0, found.output
    assert "B200: given on the command line" in found.stdout
