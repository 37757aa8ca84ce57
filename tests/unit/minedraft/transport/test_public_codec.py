from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.admin import Mode, ServerInfo, TargetInfo
from minedraft.api import (
    Delta,
    Finished,
    GenerationRequest,
    Message,
    RequestTiming,
    SpeculationStats,
    Started,
    Usage,
)
from minedraft.errors import InvalidRequestError, ProtocolError
from minedraft.plans import WorkerIdentity
from minedraft.transport import public_codec
from minedraft.types import FinishReason, ModelInfo, SamplingParams, Speculation, TokenLogprobs
from minedraft.v1 import generation_pb2

ids = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
halves = st.integers(1, 8).map(lambda n: n / 4)  # exact in 32-bit floats
samplings = st.builds(
    SamplingParams,
    temperature=st.integers(0, 8).map(lambda n: n / 4),
    top_k=st.integers(0, 100),
    top_p=halves,
    min_p=halves,
    repetition_penalty=halves,
    presence_penalty=halves.map(lambda x: -x),
    frequency_penalty=halves,
    logit_bias=st.dictionaries(st.integers(0, 9), halves),
    max_tokens=st.none() | st.integers(1, 9),
    min_tokens=st.integers(0, 9),
    stop=st.tuples(st.text(max_size=3)),
    stop_token_ids=ids,
    include_stop_str_in_output=st.booleans(),
    ignore_eos=st.booleans(),
    skip_special_tokens=st.booleans(),
    bad_words=st.tuples(st.text(max_size=3)),
    allowed_token_ids=ids,
    seed=st.none() | st.integers(0, 2**64 - 1),
    logprobs=st.none() | st.integers(0, 20),
    n=st.integers(1, 16),
)


@given(samplings)
def test_sampling_params_survive_the_wire(params: SamplingParams):
    assert public_codec.sampling_from_proto(public_codec.sampling_to_proto(params)) == params


def test_unset_fields_mean_the_defaults():
    assert public_codec.sampling_from_proto(generation_pb2.SamplingParams()) == SamplingParams()


def test_an_explicit_zero_is_a_zero():
    message = generation_pb2.SamplingParams(temperature=0.0, logprobs=0)
    params = public_codec.sampling_from_proto(message)
    assert params.temperature == 0.0
    assert params.logprobs == 0


def test_zero_top_p_and_repetition_penalty_count_as_unset():
    message = generation_pb2.SamplingParams(top_p=0.0, repetition_penalty=0.0)
    params = public_codec.sampling_from_proto(message)
    assert (params.top_p, params.repetition_penalty) == (1.0, 1.0)


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
            speculation=Speculation(
                num_draft_tokens=0, reference_token_ids=(4, 5), synthetic_acceptance=0.5
            ),
        ),
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
    ],
)
def test_what_does_not_fit_the_wire_is_refused_by_name(request_: GenerationRequest, field: str):
    with pytest.raises(InvalidRequestError, match=field.replace("[", r"\[")) as caught:
        public_codec.request_to_proto(request_)
    assert caught.value.field == field


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
            usage=Usage(3, 4),
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
    server = ServerInfo(identity, Mode(2, 8, 4), 1024, "coupled")
    to_target = public_codec.target_info_to_proto(target)
    to_server = public_codec.server_info_to_proto(server)
    assert public_codec.target_info_from_proto(to_target) == target
    assert public_codec.server_info_from_proto(to_server) == server
