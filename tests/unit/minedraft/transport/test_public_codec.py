from __future__ import annotations

import pytest

from minedraft.admin import ServerInfo, TargetInfo
from minedraft.api import (
    Delta,
    Finished,
    GenerationRequest,
    Message,
    RequestTiming,
    ResumedSample,
    SpeculationStats,
    Started,
    Usage,
)
from minedraft.errors import InvalidRequestError, ProtocolError
from minedraft.plans import WorkerIdentity
from minedraft.transport import public_codec
from minedraft.types import (
    DebugOptions,
    FinishReason,
    Mode,
    ModelInfo,
    SamplingParams,
    Speculation,
    TokenLogprobs,
)
from minedraft.v1 import generation_pb2


@pytest.mark.parametrize(
    "request_",
    [
        GenerationRequest(text="hi", request_id="r1"),
        GenerationRequest(text=""),
        GenerationRequest(token_ids=(1, 2, 3)),
        GenerationRequest(token_ids=()),
        GenerationRequest(messages=(Message("user", "hi"), Message("assistant", "ho"))),
        GenerationRequest(
            text="x",
            speculation=Speculation(num_draft_tokens=0),
            debug=DebugOptions(reference_token_ids=(4, 5), synthetic_acceptance=0.5),
        ),
        GenerationRequest(text="x", debug=DebugOptions()),
        GenerationRequest(text="x", priority=-100, cache_salt="tenant é"),
    ],
)
def test_requests_survive_the_wire(request_: GenerationRequest):
    assert public_codec.request_from_proto(public_codec.request_to_proto(request_)) == request_


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (GenerationRequest(), "prompt"),
        (GenerationRequest(text="a", token_ids=(1,)), "prompt"),
        (GenerationRequest(token_ids=(-1,)), "token_ids"),
        (GenerationRequest(token_ids=(2**32,)), "token_ids"),
        (
            GenerationRequest(text="a", sampling=SamplingParams(max_tokens=-1)),
            "sampling.max_tokens",
        ),
        (GenerationRequest(text="a", sampling=SamplingParams(seed=2**64)), "sampling.seed"),
        (
            GenerationRequest(text="a", sampling=SamplingParams(logit_bias={-1: 1.0})),
            "sampling.logit_bias",
        ),
        (
            GenerationRequest(text="a", sampling=SamplingParams(temperature="hot")),  # type: ignore[arg-type]
            "sampling.temperature",
        ),
        (GenerationRequest(messages=(Message("user", 3),)), "messages[0].content"),  # type: ignore[arg-type]
        (
            GenerationRequest(text="a", speculation=Speculation(num_draft_tokens=-1)),
            "speculation.num_draft_tokens",
        ),
        (
            GenerationRequest(text="a", debug=DebugOptions(reference_token_ids=b"ab")),  # type: ignore[arg-type]
            "debug.reference_token_ids",
        ),
        (GenerationRequest(text="a", priority=2**31), "priority"),
        (GenerationRequest(text="a", priority=True), "priority"),
        (GenerationRequest(text="a", cache_salt=7), "cache_salt"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_the_wire_is_refused_by_name(request_: GenerationRequest, field: str):
    with pytest.raises(InvalidRequestError, match=field.replace("[", r"\[")) as caught:
        public_codec.request_to_proto(request_)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (GenerationRequest(text="x" * 1000), "text"),
        (GenerationRequest(token_ids=(1,) * 1000), "token_ids"),
        (GenerationRequest(messages=(Message("user", "x" * 1000),)), "messages"),
        (GenerationRequest(text="x" * 100, resumed=(ResumedSample(0, (1,) * 900),)), "resumed"),
        (
            GenerationRequest(text="x" * 100, sampling=SamplingParams(stop=("y" * 900,))),
            "sampling",
        ),
    ],
)
def test_a_request_over_the_limit_of_the_connection_names_its_largest_field(
    request_: GenerationRequest, field: str
):
    size = public_codec.request_to_proto(request_).ByteSize()
    assert public_codec.request_to_proto(request_, max_bytes=size).ByteSize() == size
    with pytest.raises(InvalidRequestError, match=rf"^{field} .* at most {size - 1}$") as caught:
        public_codec.request_to_proto(request_, max_bytes=size - 1)
    assert caught.value.field == field


def test_an_id_to_abort_is_text():
    assert public_codec.abort_to_proto(("a", "b")).request_ids == ["a", "b"]
    with pytest.raises(InvalidRequestError) as caught:
        public_codec.abort_to_proto((5,))  # type: ignore[arg-type]
    assert caught.value.field == "request_ids"


def test_a_request_without_a_prompt_is_refused():
    with pytest.raises(InvalidRequestError, match="prompt"):
        public_codec.request_from_proto(generation_pb2.GenerateRequest())


STATS = SpeculationStats(3, 12, 7, 4, (0, 1, 1, 1))


@pytest.mark.parametrize(
    "event",
    [
        Started("r1", 2**64 - 1, 12),
        Delta(1, (5, 6), "héllo", (TokenLogprobs(5, -0.5, ((5, -0.5), (9, -1.5))),)),
        Finished(0, FinishReason.STOP, stop_string="\n\n"),
        Finished(0, FinishReason.STOP, stop_token_id=0),
        Finished(
            2,
            FinishReason.LENGTH,
            usage=Usage(3, 4, 2),
            speculation=STATS,
            timing=RequestTiming(1, 2, 3),
        ),
        Finished(0, FinishReason.ABORT),
    ],
)
def test_events_survive_the_wire(event):
    assert public_codec.event_from_proto(public_codec.event_to_proto(event)) == event


def test_an_unknown_event_is_the_peers_fault():
    with pytest.raises(ProtocolError, match="unknown event"):
        public_codec.event_from_proto(generation_pb2.GenerateResponse())


def test_an_unspecified_finish_reason_is_the_peers_fault():
    message = generation_pb2.GenerateResponse(finished=generation_pb2.Finished())
    with pytest.raises(ProtocolError, match="finish reason"):
        public_codec.event_from_proto(message)


def test_infos_survive_the_wire():
    model = ModelInfo("m", 100, 64, "ab", "float32", (1, 2), 16, 8)
    target = TargetInfo(model, has_chat_template=True)
    identity = WorkerIdentity("i", 1, 5, 6, "0.1")
    server = ServerInfo(identity, Mode(2, 8, 4, "auto"), 1024, "coupled", takes_debug_requests=True)
    to_target = public_codec.target_info_to_proto(target)
    to_server = public_codec.server_info_to_proto(server)
    assert public_codec.target_info_from_proto(to_target) == target
    assert public_codec.server_info_from_proto(to_server) == server
