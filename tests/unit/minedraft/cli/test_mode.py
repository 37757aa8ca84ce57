from __future__ import annotations

import pytest

from minedraft.types import Mode
from tests.fake_coordinator import FakeCoordinator


def test_what_no_option_names_stays(minedraft, fake: FakeCoordinator):
    result = minedraft("mode", "--batches", "1", "--shape", "auto")
    assert result.exit_code == 0
    assert fake.modes[-1] == Mode(1, 8, 4, "auto")
    assert result.stdout.strip() == "mode sd: 1 x 8 requests, k = 4, shape auto, policy fixed"
    assert minedraft("mode", "--k", "0", "--batch", "3").exit_code == 0
    assert fake.modes[-1] == Mode(1, 3, 0, "auto")
    assert minedraft("mode", "--policy", "goodput").exit_code == 0
    assert fake.modes[-1] == Mode(1, 3, 0, "auto", "goodput")


@pytest.mark.parametrize(("option", "value"), [("--batches", "9"), ("--k", "33"), ("--batch", "0")])
def test_what_is_out_of_range_is_refused_before_it_is_sent(
    minedraft, fake: FakeCoordinator, option, value
):
    result = minedraft("mode", option, value)
    assert result.exit_code == 2
    assert fake.modes == []
