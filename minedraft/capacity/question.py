"""What is asked: models, devices, load, and what must hold. Checked values. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from minedraft.capacity.roofline import EAGER, LAUNCHES
from minedraft.capacity.words import number_in, short
from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.capacity.device import Group
    from minedraft.capacity.model_shape import ModelShape
    from minedraft.services.coordinator.core.shapes import StepCosts

MAX_DRAFTERS: Final = 8
MAX_RATE: Final = 1e5
MAX_TOKENS: Final = 1 << 20
MAX_CONCURRENCY: Final = 1 << 16
_NUM_RATES: Final = 5


@dataclass(frozen=True, slots=True)
class Drafter:
    """A draft model, and how often its drafts stand."""

    name: str
    """As it was asked for."""
    shape: ModelShape
    acceptance: float
    is_assumed: bool
    """Whether nobody measured that."""
    costs: StepCosts | None = field(default=None, hash=False)
    """Measured with the target; None: by the roofline. A table that learns has no hash."""


@dataclass(frozen=True, slots=True)
class Slo:
    """What 95 % of answers must keep; infinite: nothing is asked."""

    tpot_ms: float = math.inf
    """Time per output token after the first."""
    ttft_ms: float = math.inf
    """Time to the first token, without queueing."""


@dataclass(frozen=True, slots=True)
class Question:
    """See the module docstring.

    Raises:
        ConfigError: a number is out of its range, or models do not fit together.
    """

    target: ModelShape
    drafters: tuple[Drafter, ...]
    groups: tuple[Group, ...]
    lowest_rate: float
    highest_rate: float
    """Requests per second."""
    prompt_tokens: int = 512
    output_tokens: int = 256
    context: int = 0
    """Tokens that each place has KV for; 0: prompt and output."""
    concurrency: int = 1
    """Least number of requests that must fit at once."""
    slo: Slo = field(default_factory=Slo)
    launch: str = EAGER
    hop_ms: float = 0.3
    """A message between two services."""
    tp: int | None = None
    """Devices that share the target; None: whatever is best."""
    target_costs: StepCosts | None = None
    """Measured of the target; None: by the roofline."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("rate", self.lowest_rate, 1e-3, MAX_RATE),
            ("rate", self.highest_rate, self.lowest_rate, MAX_RATE),
            ("prompt tokens", self.prompt_tokens, 1, MAX_TOKENS),
            ("output tokens", self.output_tokens, 2, MAX_TOKENS),
            ("context", self.num_places, 1, self.target.max_len),
            ("concurrency", self.concurrency, 1, MAX_CONCURRENCY),
            ("hop ms", self.hop_ms, 0, 1e3),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name}={value:g}: want {low:g}..{high:g}")
        if self.context and self.context < self.prompt_tokens + self.output_tokens:
            raise ConfigError(
                f"context={self.context}: want at least prompt and output, "
                f"{self.prompt_tokens} + {self.output_tokens} tokens"
            )
        if self.launch not in LAUNCHES:
            raise ConfigError(f"launch={short(self.launch)}: want one of {', '.join(LAUNCHES)}")
        if len(self.drafters) > MAX_DRAFTERS:
            raise ConfigError(f"drafters: want at most {MAX_DRAFTERS}, not {len(self.drafters)}")
        for drafter in self.drafters:
            if drafter.shape.vocab != self.target.vocab:
                raise ConfigError(
                    f"drafters={short(drafter.name)}: its vocabulary has {drafter.shape.vocab} "
                    f"tokens, that of {self.target.name} {self.target.vocab}"
                )

    @property
    def num_places(self) -> int:
        """Tokens of one request that there must be KV for."""
        return self.context or self.prompt_tokens + self.output_tokens

    @property
    def mean_context(self) -> float:
        """Committed tokens of a request that is half done."""
        return self.prompt_tokens + self.output_tokens / 2

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates from the lowest to the highest, evenly spaced as logarithms."""
        low, high = self.lowest_rate, self.highest_rate
        if low == high:
            return (high,)
        ratio = (high / low) ** (1 / (_NUM_RATES - 1))
        return (*(low * ratio**step for step in range(_NUM_RATES - 1)), high)

    @property
    def num_devices(self) -> int:
        """Devices of all kinds."""
        return sum(group.count for group in self.groups)


def rates_of(text: str) -> tuple[float, float]:
    """Read a rate or a range of rates: `8`, `2..40`.

    Raises:
        ConfigError: names the field and its value.
    """
    low, dots, high = text.partition("..")
    first = number_in("rate", low, 1e-3, MAX_RATE)
    last = number_in("rate", high, 1e-3, MAX_RATE) if dots else first
    if last < first:
        raise ConfigError(f"rate={short(text)}: want the lower one first")
    return first, last


_SLO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({"tpot": "tpot_ms", "ttft": "ttft_ms"})


def slo_of(text: str) -> Slo:
    """Read what must hold, in ms: `tpot=40`, `tpot=40,ttft=1000`; empty: nothing.

    Raises:
        ConfigError: names the field and its value.
    """
    found: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.strip().partition("=")
        if not equals or name not in _SLO_FIELDS:
            raise ConfigError(f"slo={short(text)}: want tpot=MS, ttft=MS, or both with a comma")
        found[_SLO_FIELDS[name]] = number_in(f"slo {name}", value, 0.01, 1e7)
    return Slo(**found)
