"""How likely a draft stands, where nothing was measured: a default by size. Pure.

The default is a line through what Leviathan et al. measured for one target with three drafters
(LaMDA 137B with 8B, 2B and 100M, dialogue: 0.75, 0.71, 0.61 greedy and 0.74, 0.71, 0.57 at
temperature 1; "Fast Inference from Transformers via Speculative Decoding", 2023, their table of
empirical alpha): a twelfth less per tenth of the size. It is an assumption for any other pair. A
text, a temperature or a distilled drafter moves it by more than another drafter does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from minedraft.capacity.words import number_in, short
from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minedraft.capacity.model_shape import ModelShape

_AT_EQUAL_SIZE: Final = 0.845
_PER_DECADE: Final = 0.083
SOURCE: Final = "a line through Leviathan et al. 2023, LaMDA 137B with 8B, 2B, 100M"
LEAST: Final = 0.05


def assumed(drafter: ModelShape, target: ModelShape) -> float:
    """Acceptance rate of each draft by the default curve."""
    decades = math.log10(min(drafter.num_params / target.num_params, 1.0))
    return max(_AT_EQUAL_SIZE + _PER_DECADE * decades, LEAST)


def given(texts: Iterable[str], drafters: Iterable[str]) -> Mapping[str, float]:
    """Read acceptance rates: `0.6B=0.62`, several with commas or as several options.

    Args:
        texts: What was given.
        drafters: As they were asked for.

    Raises:
        ConfigError: names the field and its value.
    """
    known, found = list(drafters), {}
    for part in ",".join(texts).split(",") if texts else ():
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise ConfigError(f"acceptance={short(part)}: want DRAFTER=RATE, as in 0.6B=0.62")
        if name not in known:
            raise ConfigError(
                f"acceptance={short(part)}: {short(name)} is none of the drafters "
                f"{', '.join(known) or '(there are none)'}"
            )
        found[name] = number_in(f"acceptance of {name}", value, 0, 1)
    return found


def tokens_per_step(rate: float, k: int) -> float:
    """Tokens that a request gets of a verify step: those accepted, and the target's own."""
    return float(k + 1) if rate >= 1 else (1 - rate ** (k + 1)) / (1 - rate)
