"""Generation values <-> protobuf, both directions. Values only: `validation` knows the ranges.

What does not even fit the wire (a negative count, text where a number belongs) is refused here, by
name, before anything is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from minedraft.admin import ServerInfo, TargetInfo
from minedraft.api import (
    Delta,
    Event,
    Finished,
    GenerationRequest,
    Message,
    RequestTiming,
    ResumedSample,
    SpeculationStats,
    Started,
    Usage,
)
from minedraft.errors import InvalidRequestError, ProtocolError, TooLargeError
from minedraft.transport import admin_codec, plan_codec, sampling_codec, text_codec
from minedraft.transport.fields import extend_field, set_field
from minedraft.types import FinishReason
from minedraft.v1 import generation_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REASONS = {
    FinishReason.STOP: generation_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
    FinishReason.ABORT: generation_pb2.FINISH_REASON_ABORT,
}
_REASONS_BY_NUMBER = {number: reason for reason, number in _REASONS.items()}


def request_to_proto(
    request: GenerationRequest, *, max_bytes: int | None = None
) -> generation_pb2.GenerateRequest:
    """GenerationRequest -> message.

    Args:
        request: What is asked.
        max_bytes: Largest message that the connection takes; None: any.

    Raises:
        InvalidRequestError: not exactly one prompt, or a value that does not fit its field.
        TooLargeError: more than `max_bytes`; names the field that has most of it.
    """
    given = [
        name for name in ("text", "token_ids", "messages") if getattr(request, name) is not None
    ]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise InvalidRequestError(
            f"prompt: want exactly one of text, token_ids, messages, got {found}", field="prompt"
        )
    message = generation_pb2.GenerateRequest(
        sampling=sampling_codec.sampling_to_proto(request.sampling),
        speculation=sampling_codec.speculation_to_proto(request.speculation),
    )
    set_field(message, "request_id", request.request_id, "request_id")
    set_field(message, "parse_special_tokens", request.parse_special_tokens, "parse_special_tokens")
    for name in ("resume_token", "priority", "cache_salt"):
        set_field(message, name, getattr(request, name), name)
    if request.debug is not None:
        message.debug.CopyFrom(sampling_codec.debug_to_proto(request.debug))
    for sample in request.resumed:
        message.resumed.add(
            index=sample.index, token_ids=sample.token_ids, is_finished=sample.is_finished
        )
    if request.text is not None:
        set_field(message, "text", request.text, "text")
    elif request.token_ids is not None:
        message.token_ids.SetInParent()  # an empty list is still the prompt, for the server to say
        extend_field(message.token_ids, "ids", request.token_ids, "token_ids")
    else:
        text_codec.chat_to_proto(message.chat, request.messages or ())
    if max_bytes is not None and message.ByteSize() > max_bytes:
        _refuse_size(message, max_bytes)
    return message


def request_from_proto(message: generation_pb2.GenerateRequest) -> GenerationRequest:
    """Message -> GenerationRequest.

    Raises:
        InvalidRequestError: no prompt.
    """
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    match message.WhichOneof("prompt"):
        case "text":
            text = message.text
        case "token_ids":
            token_ids = tuple(message.token_ids.ids)
        case "chat":
            messages = text_codec.chat_from_proto(message.chat)
        case _:
            raise InvalidRequestError(
                "prompt: want one of text, token_ids, chat, got none", field="prompt"
            )
    return GenerationRequest(
        text=text,
        token_ids=token_ids,
        messages=messages,
        sampling=sampling_codec.sampling_from_proto(message.sampling),
        speculation=sampling_codec.speculation_from_proto(message.speculation),
        request_id=message.request_id,
        resumed=tuple(
            ResumedSample(sample.index, tuple(sample.token_ids), sample.is_finished)
            for sample in message.resumed
        ),
        parse_special_tokens=message.parse_special_tokens,
        resume_token=message.resume_token,
        debug=(
            sampling_codec.debug_from_proto(message.debug) if message.HasField("debug") else None
        ),
        priority=message.priority,
        cache_salt=message.cache_salt,
    )


def abort_to_proto(
    request_ids: Sequence[str], resume_tokens: Sequence[bytes] = ()
) -> generation_pb2.AbortRequest:
    """Ids and the secrets that prove their owner -> message.

    Raises:
        InvalidRequestError: an id that is no text.
    """
    message = generation_pb2.AbortRequest()
    extend_field(message, "request_ids", request_ids, "request_ids")
    extend_field(message, "resume_tokens", resume_tokens, "resume_tokens")
    return message


def event_to_proto(event: Event) -> generation_pb2.GenerateResponse:
    """Event -> message."""
    match event:
        case Started():
            return generation_pb2.GenerateResponse(
                started=generation_pb2.Started(
                    request_id=event.request_id,
                    seed=event.seed,
                    num_prompt_tokens=event.num_prompt_tokens,
                )
            )
        case Delta():
            return generation_pb2.GenerateResponse(
                delta=generation_pb2.Delta(
                    index=event.index,
                    token_ids=event.token_ids,
                    text=event.text,
                    logprobs=[text_codec.spelled_to_proto(entry) for entry in event.logprobs],
                )
            )
        case Finished():
            return generation_pb2.GenerateResponse(finished=_finished_to_proto(event))


def event_from_proto(message: generation_pb2.GenerateResponse) -> Event:
    """Message -> event.

    Raises:
        ProtocolError: a kind of event this version does not know.
    """
    match message.WhichOneof("event"):
        case "started":
            started = message.started
            return Started(started.request_id, started.seed, started.num_prompt_tokens)
        case "delta":
            delta = message.delta
            return Delta(
                index=delta.index,
                token_ids=tuple(delta.token_ids),
                text=delta.text,
                logprobs=tuple(text_codec.spelled_from_proto(entry) for entry in delta.logprobs),
            )
        case "finished":
            return _finished_from_proto(message.finished)
        case other:
            raise ProtocolError(f"generate: unknown event {other!r}")


def target_info_to_proto(info: TargetInfo) -> generation_pb2.GetModelInfoResponse:
    """TargetInfo -> message."""
    return generation_pb2.GetModelInfoResponse(
        model=plan_codec.model_info_to_proto(info.model),
        has_chat_template=info.has_chat_template,
        sampling_defaults=text_codec.defaults_to_proto(info.sampling_defaults),
    )


def target_info_from_proto(message: generation_pb2.GetModelInfoResponse) -> TargetInfo:
    """Message -> TargetInfo."""
    return TargetInfo(
        plan_codec.model_info_from_proto(message.model),
        message.has_chat_template,
        text_codec.defaults_from_proto(message.sampling_defaults),
    )


def server_info_to_proto(info: ServerInfo) -> generation_pb2.GetServerInfoResponse:
    """ServerInfo -> message."""
    return generation_pb2.GetServerInfoResponse(
        identity=plan_codec.identity_to_proto(info.identity),
        num_batches=info.mode.num_batches,
        max_batch_size=info.mode.max_batch_size,
        num_draft_tokens=info.mode.num_draft_tokens,
        max_waiting_requests=info.max_waiting_requests,
        acceptance=info.acceptance,
        takes_debug_requests=info.takes_debug_requests,
        shape=info.mode.shape,
        policy=info.mode.policy,
    )


def server_info_from_proto(message: generation_pb2.GetServerInfoResponse) -> ServerInfo:
    """Message -> ServerInfo."""
    return ServerInfo(
        identity=plan_codec.identity_from_proto(message.identity),
        mode=admin_codec.mode_from_proto(message),
        max_waiting_requests=message.max_waiting_requests,
        acceptance=message.acceptance,
        takes_debug_requests=message.takes_debug_requests,
    )


def _finished_to_proto(event: Finished) -> generation_pb2.Finished:
    message = generation_pb2.Finished(
        index=event.index,
        reason=_REASONS[event.reason],
        usage=generation_pb2.Usage(
            num_prompt_tokens=event.usage.num_prompt_tokens,
            num_output_tokens=event.usage.num_output_tokens,
            num_cached_tokens=event.usage.num_cached_tokens,
        ),
        speculation=generation_pb2.SpeculationStats(**_slots(event.speculation)),
        timing=generation_pb2.RequestTiming(**_slots(event.timing)),
    )
    if event.stop_string is not None:
        message.stop_string = event.stop_string
    elif event.stop_token_id is not None:
        message.stop_token_id = event.stop_token_id
    return message


def _finished_from_proto(message: generation_pb2.Finished) -> Finished:
    if message.reason not in _REASONS_BY_NUMBER:
        raise ProtocolError(f"generate: unknown finish reason {message.reason}")
    which = message.WhichOneof("stop_reason")
    usage, stats, timing = message.usage, message.speculation, message.timing
    return Finished(
        index=message.index,
        reason=_REASONS_BY_NUMBER[message.reason],
        stop_token_id=message.stop_token_id if which == "stop_token_id" else None,
        stop_string=message.stop_string if which == "stop_string" else None,
        usage=Usage(usage.num_prompt_tokens, usage.num_output_tokens, usage.num_cached_tokens),
        speculation=SpeculationStats(
            stats.num_drafts,
            stats.num_draft_tokens,
            stats.num_accepted_tokens,
            stats.num_steps,
            tuple(stats.acceptance_histogram),
        ),
        timing=RequestTiming(timing.queue_ns, timing.ttft_ns, timing.e2e_ns),
    )


def _slots(value: SpeculationStats | RequestTiming) -> Mapping[str, Any]:
    return {name: getattr(value, name) for name in type(value).__slots__}


def _refuse_size(message: generation_pb2.GenerateRequest, max_bytes: int) -> NoReturn:
    """Raise, and name the largest field of the message."""
    size = message.ByteSize()
    sizes = {}
    for field, _ in message.ListFields():
        rest = generation_pb2.GenerateRequest()
        rest.CopyFrom(message)
        rest.ClearField(field.name)
        sizes[field.name] = size - rest.ByteSize()
    largest = max(sizes, key=sizes.__getitem__)
    name = "messages" if largest == "chat" else largest  # as the caller calls it
    raise TooLargeError(
        f"{name} has {sizes[largest]} bytes and the whole request {size}, want at most {max_bytes}",
        field=name,
    )
