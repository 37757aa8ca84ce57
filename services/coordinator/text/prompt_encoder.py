"""Encodes the text, conversations and bad words of callers, and decodes ids. Pure, and not quick.

Takes time and memory in proportion to the text, and with a model's files at odds with it much more:
the coordinator does this in a process of its own (`child`). Refuses to take a caller's words
for control tokens (`control_tokens`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.errors import InvalidRequestError
from minedraft.services.coordinator.text.chat_template import MAX_RENDERED_CHARS
from minedraft.services.coordinator.text.control_tokens import ControlTokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tokenizers

    from minedraft.services.coordinator.text.chat_template import ChatTemplate

_NEWLINE: Final = "\n"
"""Prefix that `encode_bad_word` puts before a word, to avoid a dummy space."""


class PromptEncoder:
    """See the module docstring.

    Args:
        backend: Of the target.
        chat_template: None: conversations are refused.
        template_names: Of the templates there are when none is for conversations.

    Raises:
        ModelError: Special tokens cannot be told from text.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        chat_template: ChatTemplate | None,
        template_names: Sequence[str] = (),
    ) -> None:
        self._chat_template = chat_template
        self._template_names = tuple(template_names)
        self._control = ControlTokens(backend, chat_template.source if chat_template else "")
        self._backend: tokenizers.Tokenizer = self._control.renamed

    def encode(
        self, text: str, *, parse_special_tokens: bool = False, add_special_tokens: bool = True
    ) -> list[int]:
        """Turn a text prompt into ids, with the special tokens that the post-processor adds.

        Args:
            text: Any.
            parse_special_tokens: Whether the spelling of a special token in it is that token.
            add_special_tokens: False: without those of the post-processor.

        Raises:
            InvalidRequestError: The text is no Unicode (lone surrogates).
        """
        _check_unicode(text, "text")
        text = self._control.respell(text, parse_special_tokens=parse_special_tokens)
        return self._ids(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Turn ids into text, as `Tokenizer.decode` does."""
        text = self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return self._control.restore(str(text))

    def encode_chat(
        self, messages: Sequence[tuple[str, str]], *, max_chars: int = MAX_RENDERED_CHARS
    ) -> list[int]:
        """Format (role, content) messages with the chat template and turn them into ids.

        The template writes the special tokens itself, so none are added. What stands in a message
        stays text.

        Raises:
            InvalidRequestError: No template, or one that refuses the messages.
        """
        if self._chat_template is None:
            have = "no chat template"
            if self._template_names:
                names = ", ".join(self._template_names)[:200]
                have = f"chat templates ({names}), but none named default"
            raise InvalidRequestError(
                f"chat: the model's tokenizer has {have}, send text or token_ids", field="chat"
            )
        for _, content in messages:
            _check_unicode(content, "chat.messages")
        text = self._chat_template.render(messages, max_chars=max_chars)
        hidden, back = self._render_hidden(self._chat_template, messages, text, max_chars)
        hidden = self._control.respell(hidden, parse_special_tokens=True)
        return self._ids(hidden.translate(back), add_special_tokens=False)

    def encode_bad_word(self, word: str) -> list[tuple[int, ...]]:
        """Return the id sequences that spell a word, at the start of a word and inside one.

        Args:
            word: Leading spaces are ignored: both forms are looked for anyway.

        Raises:
            InvalidRequestError: The word spells no token.
        """
        _check_unicode(word, "sampling.bad_words")
        # Nothing is said with a special token that is forbidden, so it may be named.
        bare = self._control.respell(word.lstrip() or word, parse_special_tokens=True)
        found: dict[tuple[int, ...], None] = {}
        newline = self._ids(_NEWLINE, add_special_tokens=False)
        for form in (bare, " " + bare):
            found[tuple(self._ids(form, add_special_tokens=False))] = None
            # SentencePiece puts a space before a text, so the form without one only shows after
            # something else.
            after = self._ids(_NEWLINE + form, add_special_tokens=False)
            if after[: len(newline)] == newline:
                found[tuple(after[len(newline) :])] = None
        found.pop((), None)
        if not found:
            raise InvalidRequestError(
                f"sampling.bad_words holds a word of {len(word)} characters that spells no token",
                field="sampling.bad_words",
            )
        return list(found)

    def _render_hidden(
        self,
        template: ChatTemplate,
        messages: Sequence[tuple[str, str]],
        text: str,
        max_chars: int,
    ) -> tuple[str, dict[int, str]]:
        """Render so that the control tokens in it are the template's.

        The strictest way of hiding that the template does not notice, else the most lenient.
        """
        hidden, back = text, dict[int, str]()
        for way in self._control.hide([content for _, content in messages]):
            roles = (role for role, _ in messages)
            try:
                chat = list(zip(roles, way.contents, strict=True))
                hidden, back = template.render(chat, max_chars=max_chars), way.back
            except InvalidRequestError:  # it missed what it looks for
                if way.is_last:
                    raise
                continue
            if hidden.translate(back) == text:
                break
        return hidden, back

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)


def _check_unicode(text: str, field: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as err:
        raise InvalidRequestError(
            f"{field} has {text[err.start]!r} at {err.start}, which is no Unicode character",
            field=field,
        ) from err
