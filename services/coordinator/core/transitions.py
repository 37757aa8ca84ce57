"""Looks up what follows in a table of transitions: no other state, no silent no. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from minedraft.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

S = TypeVar("S", bound="Enum")
E = TypeVar("E", bound="Enum")


def after(table: Mapping[S, Mapping[E, S]], state: S, event: E, *, noun: str, name: object) -> S:
    """Return the state after `event`.

    Args:
        table: State -> event -> next state; what is not in it is not allowed.
        state: The current one.
        event: What happens.
        noun: Of what has the state, for the error.
        name: Of the one that has it, for the error.

    Raises:
        StateError: `event` is not allowed in `state`.
    """
    try:
        return table[state][event]
    except KeyError:
        msg = f"{noun} {name}: {event.name} is not allowed in {state.name}"
        raise StateError(msg) from None
