"""Turns a config dataclass into command-line options, and their values into the config.

One list of settings: a field with its docstring is the option with its help. A field that is itself
such a dataclass is the options of its own fields.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Collection, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from typing import Annotated, Any, cast

import typer

from minedraft.errors import ConfigError


def parameters(config_class: type[Any]) -> list[inspect.Parameter]:
    """Build one keyword parameter per field, annotated for typer.

    A tuple of texts is one option with commas, so that an environment variable can hold it too.
    """
    hints, texts = typing.get_type_hints(config_class), field_docs(config_class)
    found: list[inspect.Parameter] = []
    for field in fields(config_class):
        hint = hints[field.name]
        if is_dataclass(hint):
            found.extend(parameters(cast("type[Any]", hint)))
            continue
        option = typer.Option(help=texts.get(field.name, ""), envvar=field.metadata.get("env"))
        found.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=Annotated[str if _is_tuple(hint) else hint, option],
                default=_default(field),
            )
        )
    return found


def variables(command: str, config_class: type[Any], names: Collection[str]) -> Iterator[str]:
    """Yield the environment variables that some options of a command are read from."""
    for parameter in parameters(config_class):
        if parameter.name in names:
            yield f"MINEDRAFT_{command}_{parameter.name}".upper()
            _, option = typing.get_args(parameter.annotation)
            if option.envvar:
                yield option.envvar


def build(config_class: type[Any], values: dict[str, Any]) -> Any:  # noqa: ANN401  # an instance
    """Build the config from the values of its options.

    Raises:
        ConfigError: a value out of its range.
    """
    hints = typing.get_type_hints(config_class)
    typed = {}
    for field in fields(config_class):
        hint = hints[field.name]
        if is_dataclass(hint):
            inner = cast("type[Any]", hint)
            names = {parameter.name for parameter in parameters(inner)}
            typed[field.name] = build(inner, {k: v for k, v in values.items() if k in names})
        elif field.name in values:
            value = values[field.name]
            typed[field.name] = _split(value) if _is_tuple(hint) else value
    try:
        return config_class(**typed)
    except (TypeError, ValueError) as err:
        raise ConfigError(str(err)) from None


def field_docs(config_class: type) -> dict[str, str]:
    """Read the docstring under each field of a dataclass, inherited ones too, as one line each."""
    docs: dict[str, str] = {}
    for each in reversed(config_class.__mro__):
        if is_dataclass(each):
            docs |= _own_docs(each)
    return docs


def _own_docs(config_class: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(config_class)))
    body = cast("ast.ClassDef", tree.body[0]).body
    return {
        node.target.id: " ".join(str(following.value.value).split())
        for node, following in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }


def _is_tuple(hint: object) -> bool:
    return typing.get_origin(hint) is tuple


def _default(field: Field[Any]) -> Any:  # noqa: ANN401  # of the option's type
    value = field.default if field.default_factory is MISSING else field.default_factory()
    if value is MISSING:
        return inspect.Parameter.empty
    return ",".join(value) if isinstance(value, tuple) else value


def _split(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())
