"""What a model directory's generation_config.json recommends of sampling.

Reads the six values that vLLM takes from it, by their meaning there; `do_sample` and the rest say
how transformers generates. Refuses values out of their range.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minedraft.model_files.json_file import read_object
from minedraft.types import MAX_MODEL_LEN, NO_DEFAULTS, SamplingDefaults

if TYPE_CHECKING:
    from minedraft.model_files.json_file import JsonObject

_MAX_TOP_K: Final = 2**32 - 1


def read_sampling_defaults(model_dir: str | Path) -> SamplingDefaults:
    """Read the recommendations of a model directory; without the file there are none.

    Raises:
        ModelError: The file cannot be used; names file, field, what was found and what is wanted.
    """
    config = read_object(Path(model_dir) / "generation_config.json")
    if config is None:
        return NO_DEFAULTS
    top_k = config.integer("top_k", -1, _MAX_TOP_K)
    return SamplingDefaults(
        temperature=_number(config, "temperature", 0, math.inf),
        top_k=None if top_k is None else max(top_k, 0),
        top_p=_number(config, "top_p", 0, 1, is_open=True),
        min_p=_number(config, "min_p", 0, 1),
        repetition_penalty=_number(config, "repetition_penalty", 0, math.inf, is_open=True),
        max_tokens=config.integer("max_new_tokens", 1, MAX_MODEL_LEN),
    )


def _number(
    config: JsonObject, field: str, low: float, high: float, *, is_open: bool = False
) -> float | None:
    """Read a finite number; `is_open`: `low` itself is out of range."""
    value = config.values.get(field)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not low <= value <= high
        or (is_open and value == low)
        or abs(value) > 1e30  # noqa: PLR2004 beyond a float of the wire
    ):
        least = f"more than {low}" if is_open else f"{low} or more"
        config.refuse(field, f"a number, {least}" + ("" if math.isinf(high) else f", up to {high}"))
    return float(value)
