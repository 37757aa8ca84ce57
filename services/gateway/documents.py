"""Schemas of the bodies that are read, for `/openapi.json`. Values only; `asked` reads the fields.

A test compares the two: a field that is read is documented, and the other way round.
"""

from __future__ import annotations

from typing import Any, Final

_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_IDS: Final = {"type": "array", "items": _COUNT}
_TEXTS: Final = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}


def _number(low: float, high: float | None = None) -> dict[str, Any]:
    return {"type": "number", "minimum": low, **({} if high is None else {"maximum": high})}


_COMMON: Final[dict[str, Any]] = {
    "model": {**_TEXT, "description": "A name of /v1/models. Absent: the served model."},
    "stream": {**_FLAG, "description": "Answer as server-sent events."},
    "stream_options": {
        "type": "object",
        "properties": {"include_usage": _FLAG, "continuous_usage_stats": _FLAG},
    },
    "max_tokens": {"type": "integer", "minimum": 1},
    "min_tokens": _COUNT,
    "n": {"type": "integer", "minimum": 1, "maximum": 16},
    "temperature": _number(0),
    "top_p": {**_number(0, 1), "exclusiveMinimum": 0},
    "top_k": {"type": "integer", "minimum": -1, "description": "0 and -1: off."},
    "min_p": _number(0, 1),
    "repetition_penalty": {**_number(0), "exclusiveMinimum": 0},
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "logit_bias": {
        "type": "object",
        "description": "Token id -> -100..100.",
        "additionalProperties": _number(-100, 100),
    },
    "seed": {"type": "integer", "description": "64 bits. Absent: drawn, and told in the answer."},
    "stop": _TEXTS,
    "stop_token_ids": _IDS,
    "include_stop_str_in_output": _FLAG,
    "ignore_eos": _FLAG,
    "skip_special_tokens": _FLAG,
    "bad_words": _TEXTS,
    "allowed_token_ids": _IDS,
    "return_token_ids": _FLAG,
    "return_tokens_as_token_ids": _FLAG,
    "priority": {"type": "integer", "minimum": -100, "maximum": 100},
    "cache_salt": _TEXT,
    "speculative": {
        "description": 'false: no drafts. {"k": N}: N draft tokens per step.',
        "anyOf": [_FLAG, {"type": "object", "properties": {"k": _COUNT}}],
    },
}
_PROMPT: Final = {"anyOf": [_TEXT, _IDS, {"type": "array", "items": {"anyOf": [_TEXT, _IDS]}}]}
_PART: Final = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": _TEXT},
    "required": ["type", "text"],
}
_MESSAGE: Final = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant"]},
        "content": {"anyOf": [_TEXT, {"type": "array", "items": _PART}]},
    },
    "required": ["role", "content"],
}
COMPLETION_FIELDS: Final[dict[str, Any]] = {
    **_COMMON,
    "prompt": _PROMPT,
    "echo": _FLAG,
    "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    "parse_special_tokens": {
        **_FLAG,
        "default": True,
        "description": "Whether a special token that the prompt spells out is that token.",
    },
}
CHAT_FIELDS: Final[dict[str, Any]] = {
    **_COMMON,
    "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
    "max_completion_tokens": {"type": "integer", "minimum": 1},
    "logprobs": _FLAG,
    "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": {"anyOf": [_TEXT, {"type": "null"}]},
                "code": {"anyOf": [_TEXT, {"type": "null"}]},
            },
        }
    },
}
_STATUSES: Final = {
    400: "A field is wrong; `param` names it.",
    401: "The key is unknown.",
    403: "The key's role may not call this.",
    404: "No model of this name.",
    413: "The request is too large.",
    429: "The queue is full; `retry-after` says when to try again.",
    500: "The service gave the request up.",
    503: "No verifier, or shutting down; `retry-after` says when to try again.",
    504: "The deadline passed.",
}
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
    for status, text in _STATUSES.items()
}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Null is the same as absent, for every field."""
    return {"anyOf": [schema, {"type": "null"}]}


def body_schema(fields: dict[str, Any], required: str) -> dict[str, Any]:
    """Return the schema of a body; what else a client sends is ignored."""
    return {
        "type": "object",
        "required": [required],
        "properties": {
            name: schema if name == required else _nullable(schema)
            for name, schema in fields.items()
        },
    }


COMPLETION: Final = {
    "summary": "Continue one or more prompts",
    "body": body_schema(COMPLETION_FIELDS, "prompt"),
}
CHAT: Final = {
    "summary": "Answer a chat",
    "body": body_schema(CHAT_FIELDS, "messages"),
}
