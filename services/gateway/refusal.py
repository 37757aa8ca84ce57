"""What a client is told of an error: status, OpenAI's error body, headers. Pure.

It says no text of an exception that is not ours: such a text may quote a prompt.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from minedraft.errors import (
    AuthenticationError,
    CapacityError,
    DeadlineError,
    DrainingError,
    InvalidRequestError,
    ModelNotFoundError,
    PermissionDeniedError,
    PreconditionError,
    QueueFullError,
    RequestError,
    TooLargeError,
    WorkerUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_INVALID: Final = "invalid_request_error"
_SERVER: Final = "server_error"
_NO_RETRY: Final = ("x-should-retry", "false")
_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "text": "prompt",
        "token_ids": "prompt",
        "chat.messages": "messages",
        "speculation.num_draft_tokens": "speculative",
    }
)
"""Fields of the coordinator that HTTP clients know by another name."""
_SAMPLING: Final = re.compile(r"\bsampling\.(\w+)")
_KINDS: Final[tuple[tuple[type[Exception], int, str, str | None], ...]] = (
    (ModelNotFoundError, 404, _INVALID, "model_not_found"),
    (TooLargeError, 413, _INVALID, "too_large"),
    (InvalidRequestError, 400, _INVALID, None),
    (AuthenticationError, 401, "authentication_error", "invalid_api_key"),
    (PermissionDeniedError, 403, "permission_error", "permission_denied"),
    (DeadlineError, 504, _SERVER, "deadline_exceeded"),
    (QueueFullError, 429, "rate_limit_error", "queue_full"),
    (DrainingError, 503, _SERVER, "draining"),
    (CapacityError, 503, _SERVER, "unavailable"),
    (WorkerUnavailableError, 503, _SERVER, "unavailable"),
    (PreconditionError, 400, _INVALID, "unsupported"),
    (RequestError, 400, _INVALID, None),
)
"""Class of error -> status, type and code; the first that fits."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One error as HTTP says it."""

    status: int
    message: str
    type: str = _INVALID
    param: str | None = None
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's error body."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    @property
    def encoded(self) -> bytes:
        """Its body as JSON."""
        return json.dumps(self.body).encode()


BUG: Final = Refusal(
    500, "the gateway failed; its log has the reason", _SERVER, code="internal_error"
)
"""For every exception that is not ours."""


def refusal_of(err: Exception, names: Mapping[str, str] = MappingProxyType({})) -> Refusal:
    """Say an error to a client.

    Args:
        err: What ended the request.
        names: The client's names of fields, where they are not ours (`max_tokens` ->
            `max_completion_tokens`).
    """
    message, param = str(err), None
    if isinstance(err, InvalidRequestError):
        message, param = _words(err, names)
    elif isinstance(err, ModelNotFoundError):
        param = "model"
    for kind, status, type_, code in _KINDS:
        if isinstance(err, kind):
            return Refusal(status, message, type_, param, code, _headers(err))
    # Its class tells why; its text may be of a worker's, and a retry fails again.
    message = f"the service gave the request up: {type(err).__name__}"
    return Refusal(500, message, _SERVER, code="given_up", headers=(_NO_RETRY,))


def upstream_refusal_of(err: Exception, names: Mapping[str, str]) -> Refusal:
    """Say an error of the coordinator: that the gateway may not call it is no client's fault."""
    if isinstance(err, AuthenticationError | PermissionDeniedError):
        return Refusal(500, "the coordinator refuses this gateway; its own credentials are wrong",
                       _SERVER, code="gateway_refused", headers=(_NO_RETRY,))  # fmt: skip
    return refusal_of(err, names)


def _headers(err: Exception) -> tuple[tuple[str, str], ...]:
    if isinstance(err, DeadlineError):
        return (_NO_RETRY,)
    if isinstance(err, CapacityError | WorkerUnavailableError):
        after_s = err.retry_after_s if isinstance(err, CapacityError) else 1.0
        return (("retry-after", str(max(1, math.ceil(after_s)))),)
    return ()


def _words(err: InvalidRequestError, names: Mapping[str, str]) -> tuple[str, str | None]:
    """Return message and param of an error, in the client's own names of the fields."""
    path = err.field.partition("[")[0]
    ours = _PATHS.get(path, path.removeprefix("sampling."))
    message = str(err)
    for told, wanted in _PATHS.items():
        if message.startswith(told) and not message.startswith(wanted):
            message = wanted + message.removeprefix(told)
    message = _SAMPLING.sub(lambda found: names.get(found[1], found[1]), message)
    return message, names.get(ours, ours) or None
