"""Questions about small fleets, for the tests of `minedraft.capacity`."""

from __future__ import annotations

from minedraft.capacity.acceptance import assumed
from minedraft.capacity.device import groups_of
from minedraft.capacity.known_models import model_of
from minedraft.capacity.question import Drafter, Question

TARGET = model_of("Qwen3-32B")


def drafter(name="0.6B", acceptance=None, costs=None):
    shape = model_of(name, TARGET.name)
    rate = assumed(shape, TARGET) if acceptance is None else acceptance
    return Drafter(name, shape, rate, acceptance is None, costs)


def ask(gpus="5xH100", rate=(2.0, 8.0), drafters=("0.6B",), **options):
    return Question(
        target=options.pop("target", TARGET),
        drafters=tuple(drafter(each) if isinstance(each, str) else each for each in drafters),
        groups=groups_of(gpus, options.pop("devices", {})),
        lowest_rate=rate[0],
        highest_rate=rate[1],
        **options,
    )
