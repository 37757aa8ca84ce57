from __future__ import annotations

import pytest

from minedraft.capacity.device import DEVICES
from minedraft.capacity.known_models import model_of
from minedraft.capacity.layout import Layout
from minedraft.capacity.price import gain, price
from minedraft.capacity.question import Drafter
from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.pair_costs import PairCosts
from minedraft.sim.step_costs import FlatCosts, LinearCosts
from tests.capacity_world import ask, drafter

H100 = DEVICES["H100"]
MS = 1e6


def rotation(batches, drafters=1, k=3, rate=0.5):
    return Layout(H100, 4, drafter(acceptance=rate), H100, drafters, batches, k)


@pytest.mark.parametrize(
    ("batches", "drafters", "verify", "draft", "step"),
    [
        (1, 1, 20, 10, 30),
        (2, 1, 20, 10, 20),
        (2, 1, 20, 30, 30),
        (3, 2, 20, 30, 20),
        (3, 1, 20, 30, 30),
    ],
)
def test_a_step_takes_what_its_shape_says(batches, drafters, verify, draft, step):
    costs = FlatCosts(verify * MS, draft * MS)
    found = price(rotation(batches, drafters), ask(hop_ms=0), 8, costs)
    assert found.step_ms == pytest.approx(step)
    assert found.tpot_ms == pytest.approx(batches * step / found.tokens)
    assert found.tokens_per_s == pytest.approx(8 * found.tokens / step * 1e3)
    assert found.tokens == pytest.approx(1.875)


def test_messages_count_where_nothing_hides_them():
    costs = FlatCosts(20 * MS, 10 * MS)
    assert price(rotation(1), ask(hop_ms=3), 8, costs).step_ms == pytest.approx(38)
    assert price(rotation(2), ask(hop_ms=3), 8, costs).step_ms == pytest.approx(20)


def test_prompts_are_fed_beside_the_steps_that_use_up_their_outputs():
    costs = LinearCosts(verify_base_ns=0, verify_token_ns=MS, draft_base_ns=0, slowdown=1)
    question = ask(prompt_tokens=100, output_tokens=50, hop_ms=0)
    found = price(Layout(H100, 4), question, 10, costs)
    assert found.prompt_tokens == 20
    assert found.verify_ms == pytest.approx(30)


def test_g_is_the_rotation_over_one_batch_of_all_requests():
    flat = FlatCosts(20 * MS, 20 * MS)
    assert gain(rotation(2), ask(hop_ms=0), 8, flat) == pytest.approx(1.0)
    linear = LinearCosts(0, MS, 0, MS, slowdown=1)
    assert gain(rotation(2, k=3), ask(hop_ms=0), 8, linear) > 1.4
    assert gain(rotation(1), ask(hop_ms=0), 8, flat) == 1.0


def test_two_cores_give_what_the_readme_measured():
    target = model_of("Qwen2.5-Coder-1.5B-Instruct")
    small = Drafter("0.5B", model_of("0.5B", target.name), 0.94, is_assumed=False)
    epyc = DEVICES["EPYC"]
    layout = Layout(epyc, 1, small, epyc, 1, 2, 4)
    question = ask(
        "2xEPYC", target=target, drafters=(small,), prompt_tokens=1, output_tokens=64
    )  # fmt: skip
    found = price(layout, question, 4, layout.costs(question))
    assert found.tokens == pytest.approx(4.43, rel=0.01)
    assert found.verify_ms == pytest.approx(414, rel=0.1)
    assert found.tokens_per_s == pytest.approx(44.9, rel=0.15)


def test_a_table_that_knows_nothing_is_refused():
    with pytest.raises(ConfigError, match="nothing is known of verify steps"):
        price(rotation(2), ask(), 8, PairCosts())
