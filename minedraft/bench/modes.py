"""The six measurements, and the mode of the service for each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import ConfigError
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

MODES = ("ar", "ar_all", "sd", "psd")
ALL_CORES = "ar_all"
"""The mode that has services of its own: the target on the cores of both workers."""
PLAIN_MODES = frozenset({"ar", ALL_CORES})
"""Those without drafts."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the workers compute, as taskset writes it; empty: anywhere."""

    verifier: str
    drafter: str

    def of(self, measurement: Measurement) -> str:
        """Name the cores that a measurement keeps busy."""
        has_both = measurement.on_all_cores or measurement.mode.num_draft_tokens
        named = (self.verifier, self.drafter) if has_both else (self.verifier,)
        return ",".join(cores for cores in named if cores) or "any"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of all prompts."""

    name: str
    """`ar`, `ar_2m`, `ar_all`, `sd`, `sd_2m` or `psd`."""
    mode: Mode
    on_all_cores: bool = False
    """Whether the target has the drafter's cores too, so that there is no drafter."""

    @property
    def num_resident(self) -> int:
        """Number of live requests: exactly the slots, so that no request waits for another one."""
        return self.mode.num_slots


def measurements(
    modes: Sequence[str], *, batch: int, num_draft_tokens: int
) -> tuple[Measurement, ...]:
    """Expand modes to measurements.

    PSD holds 2M requests in two batches of M. AR and SD are measured with M requests (equal
    batch) and with 2M in one batch (equal concurrency): a comparison with only one of the two
    proves nothing: at equal batch PSD has twice as many requests in flight, at equal concurrency
    its batches are half as large. AR has only the verifier's cores; `ar_all` is plain decoding of
    2M requests on the cores of both workers, so what speculation must beat to be worth its cores.

    Args:
        modes: Of `ar`, `ar_all`, `sd`, `psd`.
        batch: M, >= 1.
        num_draft_tokens: k, >= 1.

    Raises:
        ConfigError: an unknown mode, or a number out of its range.
    """
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise ConfigError(f"modes={','.join(modes)!r}: want some of {', '.join(MODES)}")
    if batch < 1:
        raise ConfigError(f"batch={batch}: want at least 1")
    if num_draft_tokens < 1:
        raise ConfigError(f"k={num_draft_tokens}: want at least 1")
    every = {
        "ar": (
            Measurement("ar", Mode(1, batch, 0)),
            Measurement("ar_2m", Mode(1, 2 * batch, 0)),
        ),
        "ar_all": (Measurement("ar_all", Mode(1, 2 * batch, 0), on_all_cores=True),),
        "sd": (
            Measurement("sd", Mode(1, batch, num_draft_tokens)),
            Measurement("sd_2m", Mode(1, 2 * batch, num_draft_tokens)),
        ),
        "psd": (Measurement("psd", Mode(2, batch, num_draft_tokens)),),
    }
    return tuple(each for mode in MODES if mode in modes for each in every[mode])
