from __future__ import annotations

from enum import Enum

import pytest

from minedraft.errors import StateError
from minedraft.services.coordinator.core.transitions import after


class Light(Enum):
    RED = "red"
    GREEN = "green"


class Event(Enum):
    GO = "go"
    STOP = "stop"


TABLE = {Light.RED: {Event.GO: Light.GREEN}, Light.GREEN: {Event.STOP: Light.RED}}


def test_the_table_says_what_follows():
    assert after(TABLE, Light.RED, Event.GO, noun="light", name=1) is Light.GREEN


@pytest.mark.parametrize("table", [TABLE, {}], ids=["no event", "no state"])
def test_what_is_not_in_the_table_is_refused_by_name(table):
    with pytest.raises(StateError, match=r"^light 7: STOP is not allowed in RED$"):
        after(table, Light.RED, Event.STOP, noun="light", name=7)
