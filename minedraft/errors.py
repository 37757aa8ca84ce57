"""Every error that MineDraft raises on purpose, with its gRPC status. Pure.

* MineDraftError
  x RequestError               the caller can fix it
    + InvalidRequestError        INVALID_ARGUMENT: names the field and the value
      - TooLargeError              INVALID_ARGUMENT: over the limit of a message
    + RequestNotFoundError       NOT_FOUND
    + ModelNotFoundError         NOT_FOUND: no model of this name is served
    + DuplicateRequestError      ALREADY_EXISTS
    + RequestAbortedError        CANCELLED
    + SupersededError            ABORTED: its caller continues it in another call
    + DeadlineError              DEADLINE_EXCEEDED
    + AuthenticationError        UNAUTHENTICATED: unknown caller
    + PermissionDeniedError      PERMISSION_DENIED: not with this caller's role, or not that path
  x CapacityError              try again later
    + QueueFullError             RESOURCE_EXHAUSTED, with a retry delay
    + UnreadError                RESOURCE_EXHAUSTED: the caller did not read its stream
    + DrainingError              UNAVAILABLE: the service is shutting down
  x WorkerError                a drafter or verifier failed
    + WorkerUnavailableError     UNAVAILABLE
    + IncompatibleWorkerError    FAILED_PRECONDITION: e.g. drafter and target vocabularies differ
    + ProtocolError              INTERNAL: the peer broke the protocol
    + NonFiniteError             INTERNAL: the model has no numbers for this request's tokens
    + SwapInProgressError        ABORTED: another swap of the drafter is under way
  x StateError                 INTERNAL: a bug on this side
  x PreconditionError          FAILED_PRECONDITION: not now, in this state of the service
    + WorkerHeldError            FAILED_PRECONDITION: the worker serves another coordinator
* ConfigError                raised before anything is served; never on the wire

The wire carries the status, google.rpc details, and in trailing metadata the class name.
"""

from __future__ import annotations

from typing import ClassVar


class MineDraftError(Exception):
    """Base of the tree. Never raised itself."""

    status: ClassVar[str] = "UNKNOWN"


class RequestError(MineDraftError):
    """The request itself is at fault."""


class InvalidRequestError(RequestError):
    """A field is missing or out of range.

    Args:
        message: For a person: names the field and the value.
        field: Path of the field in the request (``sampling.temperature``), for machines.
    """

    status = "INVALID_ARGUMENT"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class TooLargeError(InvalidRequestError):
    """The request is larger than a message may be."""


class ModelNotFoundError(RequestError):
    """No model of the name that the request gives is served."""

    status = "NOT_FOUND"


class RequestNotFoundError(RequestError):
    """No live request has this id."""

    status = "NOT_FOUND"


class DuplicateRequestError(RequestError):
    """A live request already has this id."""

    status = "ALREADY_EXISTS"


class RequestAbortedError(RequestError):
    """The client went away or called Abort."""

    status = "CANCELLED"


class SupersededError(RequestError):
    """Another call of the same caller took the request over and ended this stream."""

    status = "ABORTED"


class DeadlineError(RequestError):
    """The caller's deadline passed before the request finished."""

    status = "DEADLINE_EXCEEDED"


class AuthenticationError(RequestError):
    """The caller did not prove who it is."""

    status = "UNAUTHENTICATED"


class PermissionDeniedError(RequestError):
    """The caller is known, but may not do this."""

    status = "PERMISSION_DENIED"


class CapacityError(MineDraftError):
    """The service is healthy but full or shutting down."""

    retry_after_s: float = 1.0
    """Seconds after which a retry is worth while."""


class QueueFullError(CapacityError):
    """The waiting queue is at its limit."""

    status = "RESOURCE_EXHAUSTED"


class UnreadError(CapacityError):
    """The caller did not read its stream for too long; it may continue in another call."""

    status = "RESOURCE_EXHAUSTED"


class DrainingError(CapacityError):
    """The service received SIGTERM and takes no new requests."""

    status = "UNAVAILABLE"


class WorkerError(MineDraftError):
    """A drafter or verifier failed."""


class WorkerUnavailableError(WorkerError):
    """No answer before the deadline, or the connection broke."""

    status = "UNAVAILABLE"


class IncompatibleWorkerError(WorkerError):
    """A worker cannot serve beside the others; the message says what differs."""

    status = "FAILED_PRECONDITION"


class ProtocolError(WorkerError):
    """A peer sent a message that this side cannot accept in its current state."""

    status = "INTERNAL"


class NonFiniteError(WorkerError):
    """The target's logits for a request's tokens are no distribution (NaN, infinity).

    Its weights are at fault, or overflow in its dtype; the same tokens fail again.
    """

    status = "INTERNAL"


class SwapInProgressError(WorkerError):
    """A swap of the drafter was ordered while another one is under way."""

    status = "ABORTED"


class StateError(MineDraftError):
    """An event arrived in a state that does not allow it: a bug on this side."""

    status = "INTERNAL"


class PreconditionError(MineDraftError):
    """The service is in a state that does not allow this call; the message says which."""

    status = "FAILED_PRECONDITION"


class WorkerHeldError(PreconditionError):
    """A worker serves another coordinator; the message names it."""


class ConfigError(Exception):
    """The process was started with settings it cannot use. Names the setting and the value."""


class KernelsError(ConfigError):
    """The C kernels cannot be used here. Names the object or instruction set, and the reason."""


class ModelError(ConfigError):
    """A model directory cannot be served. Names the directory and the reason."""
