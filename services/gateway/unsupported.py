"""Fields that clients of this API send and that this server cannot honour: refused by name. Pure.

The values that ask for nothing, such as an empty list of tools, pass.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from minedraft.errors import InvalidRequestError
from minedraft.services.gateway.body import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.services.gateway.body import Body

_NOTHING: Final[tuple[Any, ...]] = (False, "", [], {})
_FIELDS: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "audio",
                "chat_template",
                "chat_template_kwargs",
                "continue_final_message",
                "documents",
                "functions",
                "guided_choice",
                "guided_grammar",
                "guided_json",
                "guided_regex",
                "logits_processors",
                "prompt_embeds",
                "prompt_logprobs",
                "structured_outputs",
                "suffix",
                "truncate_prompt_tokens",
                "use_beam_search",
                "web_search_options",
            ),
            _NOTHING,
        ),
        "add_generation_prompt": (True,),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "response_format": ({"type": "text"},),
        "spaces_between_special_tokens": (True,),
        "tool_choice": ("none", "auto"),
    }
)
"""Field -> values of it that ask for nothing; null is always one."""

NAMES: Final = (*_FIELDS, "tools", "best_of", "add_special_tokens")
"""Every field that is refused unless it asks for nothing."""


def check_unsupported(body: Body, *, is_chat: bool) -> None:
    """Refuse a request that asks for what this server has not.

    Raises:
        InvalidRequestError: names the field.
    """
    for name, harmless in _FIELDS.items():
        value = body.raw(name)
        if value is not None and not any(
            value == each and type(value) is type(each) for each in harmless
        ):
            raise InvalidRequestError(f"{name}: this server does not have it", field=name)
    tools = body.raw("tools")
    if tools and body.raw("tool_choice") != "none":
        refuse("tools", tools, "none, or tool_choice none: this server calls no tools")
    best_of = body.raw("best_of")
    if best_of is not None and best_of != (body.raw("n") or 1):
        refuse("best_of", best_of, "n: this server returns all samples that it draws")
    add = body.raw("add_special_tokens")
    if add is not None and add is is_chat:
        want = "false: the chat's template has them" if is_chat else "true"
        refuse("add_special_tokens", add, want)
    if is_chat and body.raw("echo"):
        refuse("echo", body.raw("echo"), "false in a chat")
