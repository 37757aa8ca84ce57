"""Reads prompt files: JSON Lines with `turns`, as in Spec-Bench. Takes first turns only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def load_prompts(
    path: Path, *, limit: int | None = None, max_chars: int | None = None
) -> tuple[str, ...]:
    """Read the prompts of a file.

    Args:
        path: JSON Lines; each line an object whose `turns` begins with the prompt.
        limit: Take this many, evenly spaced over the file, because Spec-Bench is sorted by
            category; None: all. Fewer in the file are repeated in order until there are enough.
        max_chars: Leave out longer prompts first.

    Raises:
        ConfigError: no such file, a line that is not of this form, or no prompt left.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as err:
        raise ConfigError(f"prompts={str(path)!r}: {err.strerror}") from None
    except UnicodeDecodeError as err:
        raise ConfigError(f"prompts={str(path)!r}: not UTF-8: byte {err.start}") from None
    prompts = [
        _prompt(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
    ]
    if max_chars is not None:
        prompts = [prompt for prompt in prompts if len(prompt) <= max_chars]
    if not prompts:
        raise ConfigError(f"prompts={str(path)!r}: no prompt in it")
    if limit is None:
        return tuple(prompts)
    if limit > len(prompts):
        return tuple(prompts[i % len(prompts)] for i in range(limit))
    return tuple(prompts[i * len(prompts) // limit] for i in range(limit))


def _prompt(line: str, place: str) -> str:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as err:
        raise ConfigError(f"{place}: not JSON: {err.msg}") from None
    turns = value.get("turns") if isinstance(value, dict) else None
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise ConfigError(f"{place}: want an object with `turns`, a list that begins with text")
    return turns[0]
