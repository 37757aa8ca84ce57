from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.capacity.device import DEVICES
from minedraft.capacity.layout import Layout
from minedraft.capacity.memory import USABLE, WORKSPACE, memory
from tests.capacity_world import TARGET, ask, drafter

H100 = DEVICES["H100"]


def test_the_fullest_device_holds_weights_and_kv():
    question = ask(context=1008, prompt_tokens=900, output_tokens=100)
    found = memory(Layout(H100, 4), question, 32)
    weights, kv = TARGET.held_bytes / 4, 32 * 1024 * TARGET.kv_bytes / 4
    assert found.target_usable == 80e9 * USABLE
    assert weights + kv + WORKSPACE < found.target < weights + kv + WORKSPACE + 1e9
    assert found.draft == 0


def test_a_drafter_without_a_device_of_its_own_takes_the_targets_memory():
    question, small = ask(), drafter("8B")
    alone = memory(Layout(H100, 4, k=2), question, 8)
    shared = memory(Layout(H100, 4, small, k=2), question, 8)
    apart = memory(Layout(H100, 4, small, H100, 1, 2, 2), question, 4)
    assert shared.target - alone.target > small.shape.held_bytes
    assert apart.target == pytest.approx(alone.target, rel=0.01)
    assert apart.draft > small.shape.held_bytes


def test_several_drafters_share_the_batches():
    question, small = ask(), drafter("8B")
    one = memory(Layout(H100, 4, small, H100, 1, 4, 2), question, 32)
    two = memory(Layout(H100, 4, small, H100, 2, 4, 2), question, 32)
    assert two.draft < one.draft


def test_what_is_missing_is_the_worse_of_both():
    question, small = ask(), drafter("8B")
    full = memory(Layout(H100, 4, small, DEVICES["EPYC"], 1, 2, 2), question, 1)
    assert full.missing == pytest.approx(full.draft - 12e9 * USABLE)
    assert memory(Layout(H100, 1), question, 200).missing > 0


@given(st.integers(1, 512), st.integers(1, 512), st.integers(0, 12))
def test_more_requests_never_need_less(few, more, k):
    low, high = sorted((few, more))
    layout = Layout(H100, 4, drafter(), H100, 1, 2, k)
    assert memory(layout, ask(), low).target <= memory(layout, ask(), high).target
