"""What a device can do, as its maker or a measurement says. A table of public figures. Pure.

Figures are of one device: bytes that it holds and reads per second, bf16 operations per second of
its dense matrix units, and what it takes to sum over devices. What a program reaches of them is in
`roofline`. A device that is not here is given as numbers: see `device_of`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from minedraft.capacity.words import number_in, short
from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DEVICES: Final = 64
MAX_KINDS: Final = 4
_GB, _TB, _TFLOPS = 1e9, 1e12, 1e12


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of device."""

    name: str
    memory: float
    """Bytes."""
    bandwidth: float
    """Bytes per second that it reads from its memory."""
    flops: float
    """Operations per second, bf16, dense."""
    link: float
    """Bytes per second from one device to another, one way."""
    hop_s: float
    """Shortest sum over devices (all-reduce), whatever its size."""
    source: str
    """Where the figures come from."""
    is_gpu: bool = True
    slowdown: float = 1.0
    """Of a step while another device computes, where they share memory."""


_NVLINK_HOP_S: Final = 15e-6
"""An all-reduce of a few kilobytes over NVLink. An assumption: engines reach 10 to 25 us."""
_PCIE_HOP_S: Final = 40e-6
"""The same over PCIe. An assumption."""

DEVICES: Final[Mapping[str, Device]] = MappingProxyType(
    {
        device.name: device
        for device in (
            Device(
                "H100", 80 * _GB, 3.35 * _TB, 989.4 * _TFLOPS, 450 * _GB, _NVLINK_HOP_S,
                "NVIDIA H100 SXM5, 80 GB: nvidia.com/en-us/data-center/h100",
            ),
            Device(
                "H200", 141 * _GB, 4.8 * _TB, 989.4 * _TFLOPS, 450 * _GB, _NVLINK_HOP_S,
                "NVIDIA H200 SXM, 141 GB: nvidia.com/en-us/data-center/h200",
            ),
            Device(
                "A100", 80 * _GB, 2.039 * _TB, 312 * _TFLOPS, 300 * _GB, _NVLINK_HOP_S,
                "NVIDIA A100 SXM4, 80 GB: nvidia.com/en-us/data-center/a100",
            ),
            Device(
                "L40S", 48 * _GB, 0.864 * _TB, 362.05 * _TFLOPS, 32 * _GB, _PCIE_HOP_S,
                "NVIDIA L40S, 48 GB, PCIe 4.0 x16: nvidia.com/en-us/data-center/l40s",
            ),
            # From the table of README.md: V of 20 and 40 tokens give what a token costs and what is
            # left, which is reading the weights. Half of that machine's memory.
            Device(
                "EPYC", 12 * _GB, 26 * _GB, 0.21 * _TFLOPS, 5 * _GB, 100e-6,
                "one core of an AMD EPYC with AVX512-bf16, measured: README.md", is_gpu=False,
                slowdown=1.06,
            ),
        )
    }
)  # fmt: skip
"""By name."""

_FIELDS: Final = (
    ("memory_gb", 0.1, 1e5),
    ("bandwidth_gb_s", 0.1, 1e6),
    ("tflops", 1e-3, 1e6),
    ("link_gb_s", 0.1, 1e6),
)
_NEEDED: Final = 3
HOW_TO_GIVE: Final = "--device NAME=MEMORY_GB,BANDWIDTH_GB_S,TFLOPS[,LINK_GB_S]"


def device_of(text: str) -> Device:
    """Read a device that is given as numbers: `B200=180,7700,2250,900`.

    Raises:
        ConfigError: names the field and its value.
    """
    name, equals, numbers = text.partition("=")
    parts = numbers.split(",")
    if not equals or not name.isidentifier() or not _NEEDED <= len(parts) <= len(_FIELDS):
        raise ConfigError(f"device={short(text)}: want {HOW_TO_GIVE}")
    found = [
        number_in(f"device {name}: {field}", value, low, high)
        for (field, low, high), value in zip(_FIELDS, parts, strict=False)
    ]
    memory, bandwidth, tflops, link = (*found, DEVICES["L40S"].link / _GB)[: len(_FIELDS)]
    return Device(
        name, memory * _GB, bandwidth * _GB, tflops * _TFLOPS, link * _GB, _NVLINK_HOP_S,
        "given on the command line",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """Devices of one kind."""

    device: Device
    count: int


def groups_of(text: str, more: Mapping[str, Device]) -> tuple[Group, ...]:
    """Read which devices there are: `5xH100`, or `4xH100+1xL40S`.

    Args:
        text: What was asked.
        more: Devices given as numbers, by name; they count before the table.

    Raises:
        ConfigError: names the field and its value; of an unknown device also those that are known.
    """
    known = {**DEVICES, **more}
    found: dict[str, Group] = {}
    for part in text.split("+")[: MAX_KINDS + 1]:
        count, times, name = part.strip().partition("x")
        if not times or not count.isdecimal() or not name:
            raise ConfigError(f"gpus={short(text)}: want COUNTxNAME, as in 5xH100 or 4xH100+1xL40S")
        by_case = {each.casefold(): each for each in known}
        real = by_case.get(name.casefold())
        if real is None:
            raise ConfigError(
                f"gpus={short(text)}: {short(name)} is not known. Known are {', '.join(known)}; "
                f"give another one's numbers with {HOW_TO_GIVE}"
            )
        if real in found:
            raise ConfigError(f"gpus={short(text)}: {real} is named twice")
        found[real] = Group(known[real], round(number_in("gpus", count, 1, MAX_DEVICES)))
    if len(found) > MAX_KINDS or sum(group.count for group in found.values()) > MAX_DEVICES:
        raise ConfigError(
            f"gpus={short(text)}: want at most {MAX_DEVICES} devices of {MAX_KINDS} kinds"
        )
    return tuple(found.values())


def all_reduce_s(device: Device, count: int, num_bytes: float) -> float:
    """Time to sum values over devices: the shortest, or what the links carry in a ring."""
    if count == 1:
        return 0.0
    carried = 2 * (count - 1) / count * num_bytes / device.link
    return math.hypot(device.hop_s, carried)
