from __future__ import annotations

import pytest

from minedraft.bench.modes import MODES, Cores, Measurement, measurements
from minedraft.errors import ConfigError
from minedraft.types import Mode


def test_equal_batch_and_equal_concurrency_are_both_measured():
    made = {m.name: m for m in measurements(MODES, batch=4, num_draft_tokens=3)}
    assert {name: m.mode for name, m in made.items()} == {
        "ar": Mode(1, 4, 0),
        "ar_2m": Mode(1, 8, 0),
        "ar_all": Mode(1, 8, 0),
        "sd": Mode(1, 4, 3),
        "sd_2m": Mode(1, 8, 3),
        "psd": Mode(2, 4, 3),
    }
    assert {name: m.num_resident for name, m in made.items()} == {
        "ar": 4, "ar_2m": 8, "ar_all": 8, "sd": 4, "sd_2m": 8, "psd": 8,
    }  # fmt: skip
    assert [name for name, m in made.items() if m.on_all_cores] == ["ar_all"]


def test_a_measurement_says_which_cores_it_keeps_busy():
    cores = Cores(verifier="0", drafter="1")
    busy = {m.name: cores.of(m) for m in measurements(MODES, batch=1, num_draft_tokens=1)}
    assert busy == {
        "ar": "0", "ar_2m": "0", "ar_all": "0,1", "sd": "0,1", "sd_2m": "0,1", "psd": "0,1",
    }  # fmt: skip
    assert Cores("", "").of(Measurement("ar", Mode(1, 1, 0))) == "any"


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
