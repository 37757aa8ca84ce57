from __future__ import annotations

import pytest

from minedraft.capacity.device import DEVICES, all_reduce_s, device_of, groups_of
from minedraft.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "gb", "tb_per_s", "tflops"),
    [
        ("H100", 80, 3.35, 989.4),
        ("H200", 141, 4.8, 989.4),
        ("A100", 80, 2.039, 312),
        ("L40S", 48, 0.864, 362.05),
    ],
)
def test_the_figures_are_those_of_the_data_sheets(name, gb, tb_per_s, tflops):
    device = DEVICES[name]
    assert (device.memory, device.bandwidth) == (gb * 1e9, pytest.approx(tb_per_s * 1e12))
    assert device.flops == pytest.approx(tflops * 1e12)


def test_every_device_has_a_source():
    assert all(device.source for device in DEVICES.values())


def test_groups_are_read():
    groups = groups_of("4xh100+1xL40S", {})
    assert [(each.count, each.device.name) for each in groups] == [(4, "H100"), (1, "L40S")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "want COUNTxNAME"),
        ("H100", "want COUNTxNAME"),
        ("-1xH100", "want COUNTxNAME"),
        ("0xH100", "gpus='0': want 1..64"),
        ("65xH100", "gpus='65': want 1..64"),
        ("40xH100+40xA100", "at most 64 devices of 4 kinds"),
        ("1xH100+1xH200+1xA100+1xL40S+1xEPYC", "at most 64 devices of 4 kinds"),
        ("1xH100+2xh100", "H100 is named twice"),
        ("2xB300", "'B300' is not known. Known are H100, H200, A100, L40S, EPYC; give another"),
    ],
)
def test_what_is_no_fleet_is_refused_by_name(text, message):
    with pytest.raises(ConfigError, match=r"^gpus") as refused:
        groups_of(text, {})
    assert message in str(refused.value)


def test_a_device_may_be_given_as_numbers():
    device = device_of("B200=180,7700,2250,900")
    assert (device.memory, device.bandwidth) == (180e9, 7.7e12)
    assert (device.flops, device.link) == (2.25e15, 900e9)
    assert groups_of("2xB200", {"B200": device})[0].device is device
    assert device_of("B200=180,7700,2250").link == DEVICES["L40S"].link


@pytest.mark.parametrize(
    "text",
    ["B200", "B200=1,2", "=1,2,3", "a b=1,2,3", "B200=1,2,3,4,5", "B200=0,2,3", "B200=1,x,3",
     "B200=1,2,nan"],
)  # fmt: skip
def test_bad_numbers_of_a_device_are_refused(text):
    with pytest.raises(ConfigError, match="device"):
        device_of(text)


def test_a_sum_over_devices_takes_a_hop_and_what_the_links_carry():
    h100 = DEVICES["H100"]
    assert all_reduce_s(h100, 1, 1e9) == 0
    assert all_reduce_s(h100, 4, 1) == pytest.approx(h100.hop_s)
    assert all_reduce_s(h100, 4, 45e9) == pytest.approx(1.5 * 45e9 / h100.link, rel=0.01)
