"""Ranges of everything that a caller may send, as generation.proto documents them. Pure.

Every refusal is an `InvalidRequestError` whose message names the field, its value and what would
do, and whose `field` is the path of the field in the request. Nothing is clipped or dropped: a
value is honoured or refused. Runs before any work, on the coordinator.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NoReturn

from minedraft.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from minedraft.api import ResumedSample
    from minedraft.types import DebugOptions, SamplingParams, Speculation

MAX_REQUEST_ID_CHARS: Final = 128
MAX_ABORT_IDS: Final = 1024
MIN_RESUME_TOKEN_BYTES: Final = 16
MAX_RESUME_TOKEN_BYTES: Final = 64
MAX_PRIORITY: Final = 100
MAX_CACHE_SALT_BYTES: Final = 128
MAX_LOGIT_BIAS: Final = 300
MAX_BIAS: Final = 100.0
MAX_PENALTY: Final = 2.0
MAX_STOP_STRINGS: Final = 16
MAX_STOP_STRING_BYTES: Final = 256
MAX_STOP_TOKEN_IDS: Final = 64
MAX_BAD_WORDS: Final = 64
MAX_BAD_WORD_BYTES: Final = 256
MAX_ALLOWED_TOKEN_IDS: Final = 4096
MAX_TOP_K: Final = 2**32 - 1
"""Largest top_k of the wire; more than the vocabulary means off."""
MAX_SEED: Final = 2**64 - 1
MAX_LOGPROBS: Final = 20
MAX_SAMPLES: Final = 16
GREEDY_BELOW: Final = 1e-5
"""Lower temperatures are greedy (`RowParams.is_greedy`)."""
CHAT_ROLES: Final = ("system", "user", "assistant")
MAX_CHAT_MESSAGES: Final = 4096
_MAX_SHOWN_CHARS: Final = 64
"""Longest quote of a refused value, because no error or log may hold a caller's text."""


def validate_sampling(
    params: SamplingParams,
    *,
    vocab_size: int,
    has_tokenizer: bool = True,
    eos_token_ids: Collection[int] = (),
) -> None:
    """Check sampling parameters.

    Args:
        params: As the caller sent them.
        vocab_size: Ids a model can emit are below this.
        has_tokenizer: False: stop strings and bad words cannot be honoured and are refused.
        eos_token_ids: Of the model, to refuse a request that allows nothing but stops.

    Raises:
        InvalidRequestError: A field is out of its range, or two contradict each other.
    """
    _number("sampling.temperature", params.temperature, 0)
    _integer("sampling.top_k", params.top_k, 0, MAX_TOP_K)
    _number("sampling.top_p", params.top_p, 0, 1, is_open=True)
    _number("sampling.min_p", params.min_p, 0, 1)
    _number("sampling.repetition_penalty", params.repetition_penalty, 0, is_open=True)
    _number("sampling.presence_penalty", params.presence_penalty, -MAX_PENALTY, MAX_PENALTY)
    _number("sampling.frequency_penalty", params.frequency_penalty, -MAX_PENALTY, MAX_PENALTY)
    _count("sampling.logit_bias", params.logit_bias, MAX_LOGIT_BIAS)
    for token_id, bias in params.logit_bias.items():
        if not _is_id(token_id, vocab_size):
            _refuse("a key of sampling.logit_bias", token_id, _below(vocab_size))
        _number(f"sampling.logit_bias[{token_id}]", bias, -MAX_BIAS, MAX_BIAS)
    _lengths(params)
    _strings("sampling.stop", params.stop, MAX_STOP_STRINGS, MAX_STOP_STRING_BYTES)
    _count("sampling.stop_token_ids", params.stop_token_ids, MAX_STOP_TOKEN_IDS)
    _ids("sampling.stop_token_ids", params.stop_token_ids, vocab_size)
    _strings("sampling.bad_words", params.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_BYTES)
    _count("sampling.allowed_token_ids", params.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS)
    _ids("sampling.allowed_token_ids", params.allowed_token_ids, vocab_size)
    if params.seed is not None:
        _integer("sampling.seed", params.seed, 0, MAX_SEED)
    if params.logprobs is not None:
        _integer("sampling.logprobs", params.logprobs, 0, MAX_LOGPROBS)
    _integer("sampling.n", params.n, 1, MAX_SAMPLES)
    if params.n > 1 and params.temperature < GREEDY_BELOW:
        _refuse("sampling.n", params.n, "1 at temperature 0: all samples would be the same")
    if not has_tokenizer:
        for name in ("stop", "bad_words"):
            if value := getattr(params, name):
                raise InvalidRequestError(
                    f"sampling.{name} has {len(value)} entries, want none: this service has no "
                    "tokenizer",
                    field=f"sampling.{name}",
                )
    _way_out(params, eos_token_ids)


def validate_speculation(speculation: Speculation, *, max_draft_tokens: int) -> None:
    """Check per-request speculation; the service drafts `max_draft_tokens` at the most.

    Raises:
        InvalidRequestError: A field is out of its range.
    """
    if speculation.num_draft_tokens is not None:
        _integer("speculation.num_draft_tokens", speculation.num_draft_tokens, 0, max_draft_tokens)


def validate_debug(debug: DebugOptions, *, vocab_size: int, max_model_len: int) -> None:
    """Check debug options; a reference longer than `max_model_len` could not be used.

    Raises:
        InvalidRequestError: A field is out of its range.
    """
    _count("debug.reference_token_ids", debug.reference_token_ids, max_model_len)
    _ids("debug.reference_token_ids", debug.reference_token_ids, vocab_size)
    if debug.synthetic_acceptance is not None:
        _number("debug.synthetic_acceptance", debug.synthetic_acceptance, 0, 1)


def validate_prompt(
    prompt_token_ids: Sequence[int],
    *,
    vocab_size: int,
    max_model_len: int,
    max_tokens: int,
    min_tokens: int = 0,
) -> None:
    """Check a tokenized prompt against the model.

    Args:
        prompt_token_ids: All of the prompt, special tokens included.
        vocab_size: Ids are below this.
        max_model_len: Most positions, prompt and output together.
        max_tokens: Output tokens asked for, after defaults (`intake.resolve_max_tokens`).
        min_tokens: `SamplingParams.min_tokens`, checked against the resolved `max_tokens`.

    Raises:
        InvalidRequestError: Empty, too long, or with an id outside the vocabulary.
    """
    num_prompt = len(prompt_token_ids)
    if num_prompt == 0:
        raise InvalidRequestError("prompt is empty, want at least one token", field="prompt")
    if num_prompt >= max_model_len:
        raise prompt_too_long(num_prompt, max_model_len)
    _integer("sampling.max_tokens", max_tokens, 1)
    if num_prompt + max_tokens > max_model_len:
        raise InvalidRequestError(
            f"prompt has {num_prompt} tokens and sampling.max_tokens is {max_tokens}, "
            f"together {num_prompt + max_tokens}, want at most the context of {max_model_len}",
            field="sampling.max_tokens",
        )
    if min_tokens > max_tokens:
        _refuse("sampling.min_tokens", min_tokens, f"at most max_tokens, {max_tokens}")
    _ids("prompt", prompt_token_ids, vocab_size)


def validate_resumed(
    resumed: Sequence[ResumedSample],
    *,
    sampling: SamplingParams,
    vocab_size: int,
    max_tokens: int,
) -> None:
    """Check the tokens that a caller holds of a broken stream.

    Raises:
        InvalidRequestError: Samples that cannot be, more tokens than the request allows, or no
            seed to continue with.
    """
    holds_tokens = any(sample.token_ids for sample in resumed)
    if holds_tokens and sampling.seed is None and sampling.temperature >= GREEDY_BELOW:
        raise InvalidRequestError(
            "resumed: sampling.seed is not set, want the seed that Started reported",
            field="sampling.seed",
        )
    seen: set[int] = set()
    for sample in resumed:
        if sample.index in seen or not 0 <= sample.index < sampling.n:
            _refuse("resumed.index", sample.index, f"each of 0..{sampling.n - 1} at most once")
        seen.add(sample.index)
        _count("resumed.token_ids", sample.token_ids, max_tokens)
        _ids("resumed.token_ids", sample.token_ids, vocab_size)


def prompt_too_long(num_prompt_tokens: int, max_model_len: int) -> InvalidRequestError:
    """Build the error of a prompt that fills the context or more."""
    return InvalidRequestError(
        f"prompt has {num_prompt_tokens} tokens, want fewer than the context of "
        f"{max_model_len} so that at least one can be generated",
        field="prompt",
    )


def validate_text(text: str, *, max_bytes: int) -> None:
    """Check a text prompt before it is tokenized.

    Args:
        text: Any.
        max_bytes: What the context holds if every token is the longest one.

    Raises:
        InvalidRequestError: It is empty, or can never fit.
    """
    if not text:
        raise InvalidRequestError("text is empty, want at least one character", field="text")
    _bytes("text", _size(text), max_bytes)


def validate_chat(messages: Sequence[tuple[str, str]], *, max_bytes: int) -> None:
    """Check (role, content) messages before they are formatted.

    Args:
        messages: Oldest first.
        max_bytes: Of all contents: what the context holds if every token is the longest one.

    Raises:
        InvalidRequestError: None, too many, an unknown role, or they can never fit.
    """
    if not messages:
        raise InvalidRequestError("chat.messages is empty, want one or more", field="chat.messages")
    _count("chat.messages", messages, MAX_CHAT_MESSAGES)
    for index, (role, _) in enumerate(messages):
        if role not in CHAT_ROLES:
            _refuse(f"chat.messages[{index}].role", role, f"one of {', '.join(CHAT_ROLES)}")
    _bytes("chat.messages", sum(_size(content) for _, content in messages), max_bytes)


def validate_request_id(request_id: str) -> None:
    """Check a request id; an empty one means that the coordinator draws it.

    Raises:
        InvalidRequestError: Too long.
    """
    if len(request_id) > MAX_REQUEST_ID_CHARS:
        raise InvalidRequestError(
            f"request_id has {len(request_id)} characters, want at most {MAX_REQUEST_ID_CHARS}",
            field="request_id",
        )


def validate_resume_token(resume_token: bytes) -> None:
    """Check the secret of a request. Empty: it has none.

    Raises:
        InvalidRequestError: too short to be a secret, or too long; shows its length alone.
    """
    size = len(resume_token)
    if size and not MIN_RESUME_TOKEN_BYTES <= size <= MAX_RESUME_TOKEN_BYTES:
        raise InvalidRequestError(
            f"resume_token has {size} bytes, want {MIN_RESUME_TOKEN_BYTES}.."
            f"{MAX_RESUME_TOKEN_BYTES}, or none",
            field="resume_token",
        )


def validate_priority(priority: int) -> None:
    """Check the priority of a request.

    Raises:
        InvalidRequestError: Out of range.
    """
    _integer("priority", priority, -MAX_PRIORITY, MAX_PRIORITY)


def validate_cache_salt(cache_salt: str) -> None:
    """Check the salt of cached prefixes. Empty: there is none.

    Raises:
        InvalidRequestError: Too long; shows its length alone, because it is a secret.
    """
    size = _size(cache_salt)
    if size > MAX_CACHE_SALT_BYTES:
        message = f"cache_salt has {size} bytes, want at most {MAX_CACHE_SALT_BYTES}"
        raise InvalidRequestError(message, field="cache_salt")


def validate_abort(request_ids: Sequence[str], resume_tokens: Sequence[bytes] = ()) -> None:
    """Check an abort. Unknown ids are fine, and so is a repeated one.

    Raises:
        InvalidRequestError: Too many, or not a token per id.
    """
    _count("request_ids", request_ids, MAX_ABORT_IDS)
    if resume_tokens and len(resume_tokens) != len(request_ids):
        raise InvalidRequestError(
            f"resume_tokens has {len(resume_tokens)} entries, want none or one per id, "
            f"{len(request_ids)}",
            field="resume_tokens",
        )
    for resume_token in resume_tokens:
        validate_resume_token(resume_token)


def check_count(field: str, count: int, most: int) -> None:
    """Check the number of elements of a field.

    Raises:
        InvalidRequestError: Too many.
    """
    if count > most:
        raise InvalidRequestError(f"{field} has {count} entries, want at most {most}", field=field)


def _lengths(params: SamplingParams) -> None:
    if params.max_tokens is not None:
        _integer("sampling.max_tokens", params.max_tokens, 1)
    _integer("sampling.min_tokens", params.min_tokens, 0)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        _refuse(
            "sampling.min_tokens", params.min_tokens, f"at most max_tokens, {params.max_tokens}"
        )


def _way_out(params: SamplingParams, eos_token_ids: Collection[int]) -> None:
    """Refuse a request that masks every allowed token until min_tokens are out."""
    stops = set(params.stop_token_ids)
    if not params.ignore_eos:
        stops.update(eos_token_ids)
    allowed = params.allowed_token_ids
    if params.min_tokens and allowed and stops.issuperset(allowed):
        want = f"an id that is no stop, for sampling.min_tokens is {params.min_tokens}"
        _refuse("sampling.allowed_token_ids", allowed[:8], want)


def _number(
    field: str, value: float, low: float, high: float = math.inf, *, is_open: bool = False
) -> None:
    """Require a finite number in low..high; `is_open`: above `low`."""
    is_number = type(value) is int or (type(value) is float and math.isfinite(value))
    if not is_number or not low <= value <= high or (is_open and value == low):
        want = f"a finite number {'>' if is_open else '>='} {low:g}"
        _refuse(field, value, want if high == math.inf else f"{want} and <= {high:g}")


def _integer(field: str, value: int, low: int, high: int | None = None) -> None:
    if type(value) is not int or value < low or (high is not None and value > high):
        want = f"{low}..{high}" if high is not None else f">= {low}"
        _refuse(field, value, f"an integer {want}")


def _count(field: str, values: Collection[object], most: int) -> None:
    check_count(field, len(values), most)


def _strings(field: str, values: Sequence[str], most: int, most_bytes: int) -> None:
    if isinstance(values, str):  # one string is a sequence of strings too
        _refuse(field, values, "a tuple of strings")
    _count(field, values, most)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            _refuse(f"{field}[{index}]", value, "a string")
        size = _size(value)
        if not 1 <= size <= most_bytes:
            message = f"{field}[{index}] has {size} bytes, want 1..{most_bytes}"
            raise InvalidRequestError(message, field=field)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _bytes(field: str, size: int, most: int) -> None:
    if size > most:
        raise InvalidRequestError(
            f"{field} has {size} bytes, want at most {most}: what the context holds if each of its "
            "tokens is the longest one",
            field=field,
        )


def _ids(field: str, ids: Sequence[int], vocab_size: int) -> None:
    if not ids or (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < vocab_size):
        return  # the long prompts go this way, in C
    for index, token_id in enumerate(ids):
        if not _is_id(token_id, vocab_size):
            _refuse(f"{field}[{index}]", token_id, _below(vocab_size))


def _is_id(token_id: int, vocab_size: int) -> bool:
    return type(token_id) is int and 0 <= token_id < vocab_size


def _below(vocab_size: int) -> str:
    return f"an id below the vocabulary size {vocab_size}"


def _refuse(place: str, value: object, want: str) -> NoReturn:
    """Raise. The path of the field is the last word of `place`, up to an index."""
    field = place.rpartition(" ")[2].partition("[")[0]
    shown = repr(value[: _MAX_SHOWN_CHARS + 1] if isinstance(value, str) else value)
    if len(shown) > _MAX_SHOWN_CHARS:
        shown = f"{shown[:_MAX_SHOWN_CHARS]}..."
    raise InvalidRequestError(f"{place} is {shown}, want {want}", field=field)
