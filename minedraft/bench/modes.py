"""The five measurements, and the mode of the service for each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import ConfigError
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

MODES = ("ar", "sd", "psd")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of all prompts."""

    name: str
    """`ar`, `ar_2m`, `sd`, `sd_2m` or `psd`."""
    mode: Mode

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
    its batches are half as large.

    Args:
        modes: Of `ar`, `sd`, `psd`.
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
        "sd": (
            Measurement("sd", Mode(1, batch, num_draft_tokens)),
            Measurement("sd_2m", Mode(1, 2 * batch, num_draft_tokens)),
        ),
        "psd": (Measurement("psd", Mode(2, batch, num_draft_tokens)),),
    }
    return tuple(each for mode in MODES if mode in modes for each in every[mode])
