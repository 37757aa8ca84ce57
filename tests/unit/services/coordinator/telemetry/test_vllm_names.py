from __future__ import annotations

from dataclasses import replace

from minedraft.services.coordinator.telemetry.families import families
from minedraft.services.coordinator.telemetry.observed import Observed
from minedraft.services.coordinator.telemetry.vllm_names import aliases
from tests.unit.services.coordinator.telemetry.test_families import STATUS


def found(status=STATUS):
    ours = list(families(status, Observed(), ()))
    return {family.name: family for family in aliases(ours, status)}


def test_a_figure_has_the_labels_of_vllm_before_its_own():
    by_name = found()
    own = (("model_name", "target"), ("engine", "0"))
    assert by_name["generation_tokens"].samples == ((own, 12_345_678),)
    assert by_name["spec_decode_num_accepted_tokens_per_pos"].samples == (
        ((*own, ("position", "0")), 4),
        ((*own, ("position", "1")), 1),
        ((*own, ("position", "2")), 0),
        ((*own, ("position", "3")), 0),
    )
    reasons = by_name["request_success"].samples
    assert ((*own, ("finished_reason", "stop")), 2) in reasons


def test_a_distribution_is_the_same_one():
    observed = Observed()
    ours = list(families(STATUS, observed, ()))
    theirs = {family.name: family for family in aliases(ours, STATUS)}
    assert theirs["time_to_first_token_seconds"].histogram is observed.ttft_s
    assert theirs["e2e_request_latency_seconds"].histogram is observed.e2e_s


def test_the_share_of_blocks_is_a_share():
    assert found()["kv_cache_usage_perc"].samples[0][1] == 0.4
    nothing = replace(STATUS, num_blocks=0, num_blocks_used=0, workers=())
    assert found(nothing)["kv_cache_usage_perc"].samples == (
        ((("model_name", ""), ("engine", "0")), 0.0),
    )
