from __future__ import annotations

import pytest

from minedraft.capacity.layout import KS, Layout, layouts
from minedraft.capacity.roofline import RooflineCosts
from minedraft.sim.step_costs import FlatCosts
from tests.capacity_world import ask, drafter


def test_no_layout_uses_more_devices_than_there_are():
    question = ask("4xH100+2xL40S", drafters=("0.6B", "8B"))
    counts = {each.device.name: each.count for each in question.groups}
    for layout in layouts(question):
        used = dict.fromkeys(counts, 0)
        used[layout.device.name] += layout.num_groups * layout.tp
        if layout.draft_device is not None:
            used[layout.draft_device.name] += layout.num_groups * layout.num_drafters
        assert all(used[name] <= counts[name] for name in counts)
        assert sum(used.values()) == layout.num_devices


def test_there_is_plain_decoding_a_shared_device_and_every_rotation():
    found = set(layouts(ask("5xH100")))
    h100 = next(iter(found)).device
    assert Layout(h100, 1, num_groups=5) in found
    assert {each.k for each in found if each.is_shared} == set(KS)
    rotations = {(each.num_drafters, each.num_batches) for each in found if each.draft_device}
    assert rotations == {(d, a) for d in range(1, 5) for a in range(1, d + 2)}


def test_a_target_is_shared_by_divisors_of_its_kv_heads_only():
    assert {each.tp for each in layouts(ask("16xH100"))} == {1, 2, 4, 8}
    assert {each.tp for each in layouts(ask("16xH100", tp=4))} == {4}


def test_measured_costs_of_two_devices_are_not_used_for_one():
    measured = FlatCosts(1e6, 1e6)
    question = ask("2xH100", drafters=(drafter(costs=measured),), target_costs=measured)
    found = list(layouts(question))
    assert not [each for each in found if each.is_shared]
    assert {each.costs(question) for each in found} == {measured}


def test_a_measured_target_counts_for_every_drafter():
    question = ask("2xH100", target_costs=FlatCosts(7e6, 1e6))
    for layout in layouts(question):
        costs = layout.costs(question)
        assert costs.verify_ns(8, 8, 800, overlapped=0) == 7e6
        if layout.k:
            assert costs.draft_ns((8,), 8, 800, overlapped=0) == pytest.approx(10.08e6)


def test_costs_without_a_measurement_are_of_the_roofline():
    question = ask("2xH100")
    assert all(isinstance(each.costs(question), RooflineCosts) for each in layouts(question))


def test_a_structure_is_all_but_k_and_the_number_of_groups():
    found = list(layouts(ask("5xH100")))
    assert len({each.structure for each in found}) < len(found) / len(KS) + 4
