from __future__ import annotations

import pytest

from minedraft.bench.modes import measurements
from minedraft.errors import ConfigError
from minedraft.types import Mode


def test_equal_batch_and_equal_concurrency_are_both_measured():
    made = {m.name: m for m in measurements(("ar", "sd", "psd"), batch=4, num_draft_tokens=3)}
    assert {name: m.mode for name, m in made.items()} == {
        "ar": Mode(1, 4, 0),
        "ar_2m": Mode(1, 8, 0),
        "sd": Mode(1, 4, 3),
        "sd_2m": Mode(1, 8, 3),
        "psd": Mode(2, 4, 3),
    }
    assert {name: m.num_resident for name, m in made.items()} == {
        "ar": 4, "ar_2m": 8, "sd": 4, "sd_2m": 8, "psd": 8,
    }  # fmt: skip


def test_plain_ar_comes_first_whatever_the_order_asked_for():
    names = [m.name for m in measurements(("psd", "ar"), batch=1, num_draft_tokens=1)]
    assert names == ["ar", "ar_2m", "psd"]


@pytest.mark.parametrize(
    ("modes", "batch", "k", "message"),
    [
        (("ar", "pearl"), 1, 1, "pearl"),
        ((), 1, 1, "modes"),
        (("ar",), 0, 1, "batch=0"),
        (("ar",), 1, 0, "k=0"),
    ],
)
def test_bad_options_are_named(modes, batch, k, message):
    with pytest.raises(ConfigError, match=message):
        measurements(modes, batch=batch, num_draft_tokens=k)
