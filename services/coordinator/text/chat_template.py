"""Formats a conversation with the chat template (Jinja) of a model.

A template comes from a model directory and is not trusted: it runs in Jinja's immutable sandbox,
sees plain strings only, and refuses to make a prompt without bound. It bounds neither time nor
memory: the process that renders does (`child`). No transformers.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes

from minedraft.errors import InvalidRequestError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2.parser import Parser

MAX_RENDERED_CHARS: Final = 1 << 24
"""Longest prompt that a template may make."""

# What an expression inside a template can raise besides Jinja's own errors.
_RENDER_ERRORS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: Jinja text.
        special_tokens: Name to token (`bos_token`: `<s>`), as the template reads them.
        now: Clock behind `strftime_now`.

    Raises:
        ModelError: The template is no Jinja.
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        # The block options are those of transformers: whitespace is part of the prompt.
        environment = _Sandbox(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols, _Generation],
            autoescape=False,  # the output is a prompt, not a web page
            # Both, or it would evaluate what is constant now, and in this process.
            optimized=False,
            finalize=_as_it_is,
        )
        clock = now if now is not None else _local_time
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda pattern: clock().strftime(pattern)
        try:
            self._template = environment.from_string(source)
            self._source = source
        except (jinja2.TemplateError, RecursionError) as err:
            raise ModelError(f"chat template is no valid Jinja: {err}") from err
        self._variables: dict[str, Any] = {
            **(special_tokens or {}),
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
        }

    @property
    def source(self) -> str:
        """Jinja text."""
        return self._source

    def render(
        self, messages: Sequence[tuple[str, str]], *, max_chars: int = MAX_RENDERED_CHARS
    ) -> str:
        """Format messages, and open the assistant's turn.

        Args:
            messages: (role, content), oldest first.
            max_chars: Longest prompt to make.

        Raises:
            InvalidRequestError: The template refuses the conversation, or fails on it.
        """
        chat = [{"role": role, "content": content} for role, content in messages]
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(messages=chat, **self._variables):
                size += len(part)
                if size > max_chars:
                    raise InvalidRequestError(
                        f"chat.messages make a prompt of more than {max_chars} characters",
                        field="chat.messages",
                    )
                parts.append(part)
        except _RENDER_ERRORS as err:
            # Words that stand in the template are its author's; any other may quote the messages.
            why = str(err) if str(err) in self._source else type(err).__name__
            raise InvalidRequestError(
                f"chat.messages: the model's chat template refused them: {why}",
                field="chat.messages",
            ) from err
        return "".join(parts)


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, with bounds on operators that multiply the size of their operands."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: object, right: object
    ) -> Any:  # noqa: ANN401 a template's values have any type
        if operator == "**":
            raise jinja2.exceptions.SecurityError("a chat template may not use **")
        if operator == "*":
            for factor, other in ((left, right), (right, left)):
                if isinstance(factor, (str, list, tuple)) and isinstance(other, int):
                    _check_size(len(factor) * other)
        return super().call_binop(context, operator, left, right)


class _Generation(jinja2.ext.Extension):
    """Accept `{% generation %}`: it marks the assistant's words for training, and prints them."""

    tags = {"generation"}  # noqa: RUF012 Jinja's own class attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@jinja2.pass_context
def _as_it_is(_context: jinja2.runtime.Context, value: object) -> object:
    return value


def _check_size(size: int) -> None:
    if size > MAX_RENDERED_CHARS:
        raise jinja2.exceptions.SecurityError(
            f"a chat template may not make a value of {size} items"
        )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _local_time() -> datetime:
    return datetime.now(tz=UTC).astimezone()


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 the filter's signature in transformers
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 the filter's signature in transformers
) -> str:
    """Write JSON without HTML escapes, unlike Jinja's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
