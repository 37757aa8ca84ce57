from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import InvalidRequestError
from minedraft.transport import sampling_codec
from minedraft.types import DebugOptions, SamplingParams, Speculation
from minedraft.v1 import generation_pb2, types_pb2
from minedraft.validation import validate_debug, validate_sampling, validate_speculation

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
    assert sampling_codec.sampling_from_proto(sampling_codec.sampling_to_proto(params)) == params


def test_unset_fields_mean_the_defaults():
    assert sampling_codec.sampling_from_proto(generation_pb2.SamplingParams()) == SamplingParams()


# Of every number and flag, what its zero means: a value like others, or nothing that can be.
ZEROS = {
    "temperature": "kept",
    "top_k": "kept",
    "top_p": "refused",
    "min_p": "kept",
    "repetition_penalty": "refused",
    "presence_penalty": "kept",
    "frequency_penalty": "kept",
    "max_tokens": "refused",
    "min_tokens": "kept",
    "include_stop_str_in_output": "kept",
    "ignore_eos": "kept",
    "skip_special_tokens": "kept",
    "seed": "kept",
    "logprobs": "kept",
    "n": "refused",
}
SPECULATION_ZEROS = {"num_draft_tokens": "kept"}
DEBUG_ZEROS = {"synthetic_acceptance": "kept"}


def test_the_tables_of_zeros_are_complete():
    for table, message in (
        (ZEROS, generation_pb2.SamplingParams),
        (SPECULATION_ZEROS, generation_pb2.Speculation),
        (DEBUG_ZEROS, types_pb2.DebugOptions),
    ):
        fields = message.DESCRIPTOR.fields
        assert table.keys() == {field.name for field in fields if not field.is_repeated}


@pytest.mark.parametrize(("name", "fate"), ZEROS.items())
def test_a_zero_is_never_taken_for_unset(name: str, fate: str):
    zero = type(getattr(SamplingParams(max_tokens=1, seed=1, logprobs=1), name))(0)
    params = SamplingParams(**{name: zero})  # type: ignore[arg-type]
    arrived = sampling_codec.sampling_from_proto(sampling_codec.sampling_to_proto(params))
    assert arrived == params
    if fate == "kept":
        validate_sampling(arrived, vocab_size=10)
    else:
        with pytest.raises(InvalidRequestError, match=rf"sampling\.{name} is 0") as caught:
            validate_sampling(arrived, vocab_size=10)
        assert caught.value.field == f"sampling.{name}"


@pytest.mark.parametrize("name", SPECULATION_ZEROS)
def test_a_zero_of_speculation_is_never_taken_for_unset(name: str):
    value = Speculation(**{name: 0})  # type: ignore[arg-type]
    arrived = sampling_codec.speculation_from_proto(sampling_codec.speculation_to_proto(value))
    assert arrived == value
    validate_speculation(arrived, max_draft_tokens=4)


def test_a_zero_of_debug_options_is_never_taken_for_unset():
    value = DebugOptions(synthetic_acceptance=0.0)
    arrived = sampling_codec.debug_from_proto(sampling_codec.debug_to_proto(value))
    assert arrived == value
    validate_debug(arrived, vocab_size=10, max_model_len=10)
