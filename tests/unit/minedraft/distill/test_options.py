"""Settings of a distillation: ranges, said by name and value."""

from __future__ import annotations

import re

import pytest

from minedraft.distill.options import DistillOptions
from minedraft.errors import ConfigError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", (2, 1)),
        ("layers", (-1, 0)),
        ("layers", (1, 1)),
        ("max_new_tokens", 0),
        ("max_prompt_tokens", 0),
        ("generation_batch", 0),
        ("greedy_share", 1.5),
        ("greedy_share", float("nan")),
        ("temperature", 0.0),
        ("temperature", float("inf")),
        ("num_logprobs", 0),
        ("num_logprobs", 2000),
        ("soft_share", -0.1),
        ("epochs", 0.0),
        ("epochs", float("nan")),
        ("tokens_per_batch", 0),
        ("peak_learning_rate", 0.0),
        ("warmup_steps", -1),
        ("seed", -1),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name_and_value(tmp_path, field, value):
    with pytest.raises(ConfigError, match=re.escape(f"{field} {value!r}")):
        DistillOptions(target=tmp_path, output=tmp_path, **{field: value})


def test_the_defaults_are_in_range(tmp_path):
    assert DistillOptions(target=tmp_path, output=tmp_path).layers == ()
