"""Every field of a request: what is in range passes, what is not is named."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft import validation
from minedraft.errors import InvalidRequestError
from minedraft.types import DebugOptions, SamplingParams, Speculation

NAN, INF = float("nan"), float("inf")
VOCAB = 100


def sampling(**values):
    validation.validate_sampling(SamplingParams(**values), vocab_size=VOCAB)


def speculation(**values):
    validation.validate_speculation(Speculation(**values), max_draft_tokens=7)


def debug(**values):
    validation.validate_debug(DebugOptions(**values), vocab_size=VOCAB, max_model_len=32)


def prompt(ids, max_tokens=1, **values):
    validation.validate_prompt(
        ids, vocab_size=VOCAB, max_model_len=16, max_tokens=max_tokens, **values
    )


GOOD = [
    {},
    {"temperature": 0.0},
    {"temperature": 0},
    {"temperature": 1e-6},
    {"temperature": 100.0},
    {"top_k": 0},
    {"top_k": 10 * VOCAB},
    {"top_p": 1.0},
    {"top_p": 1e-9},
    {"min_p": 0.0},
    {"min_p": 1.0},
    {"repetition_penalty": 0.01},
    {"presence_penalty": -2.0, "frequency_penalty": 2.0},
    {"logit_bias": {0: -100.0, VOCAB - 1: 100.0}},
    {"logit_bias": dict.fromkeys(range(VOCAB), 1.0)},
    {"max_tokens": 1},
    {"max_tokens": 4, "min_tokens": 4},
    {"min_tokens": 400},
    {"stop": ("x" * 256,) * 16},
    {"stop_token_ids": (0,) * 64},
    {"bad_words": ("x" * 256,) * 64},
    {"allowed_token_ids": (0,) * 4096},
    {"seed": 0},
    {"seed": 2**64 - 1},
    {"logprobs": 0},
    {"logprobs": 20},
    {"n": 16},
    {"n": 1, "temperature": 0.0},
    {"allowed_token_ids": (1, 2), "stop_token_ids": (1,), "min_tokens": 3},
    {"allowed_token_ids": (1,), "stop_token_ids": (1,)},
]

BAD = [
    ({"temperature": NAN}, "temperature is nan, want a finite number >= 0"),
    ({"temperature": INF}, "temperature is inf, want a finite number >= 0"),
    ({"temperature": -0.1}, "temperature is -0.1, want a finite number >= 0"),
    ({"temperature": "hot"}, "temperature is 'hot'"),
    ({"temperature": True}, "temperature is True"),
    ({"top_k": -1}, "top_k is -1, want an integer 0..4294967295"),
    ({"top_k": 2**32}, "top_k is 4294967296"),
    ({"top_k": 1.5}, "top_k is 1.5"),
    ({"top_p": 0.0}, "top_p is 0.0, want a finite number > 0 and <= 1"),
    ({"top_p": 1.01}, "top_p is 1.01"),
    ({"top_p": NAN}, "top_p is nan"),
    ({"min_p": -0.01}, "min_p is -0.01, want a finite number >= 0 and <= 1"),
    ({"min_p": 1.5}, "min_p is 1.5"),
    ({"min_p": NAN}, "min_p is nan"),
    ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0, want a finite number > 0"),
    ({"repetition_penalty": -1.0}, "repetition_penalty is -1.0"),
    ({"repetition_penalty": INF}, "repetition_penalty is inf"),
    ({"presence_penalty": 2.1}, "presence_penalty is 2.1, want a finite number >= -2 and <= 2"),
    ({"presence_penalty": NAN}, "presence_penalty is nan"),
    ({"frequency_penalty": -2.1}, "frequency_penalty is -2.1"),
    ({"frequency_penalty": -INF}, "frequency_penalty is -inf"),
    ({"logit_bias": {VOCAB: 1.0}}, "logit_bias is 100, want an id below the vocabulary size 100"),
    ({"logit_bias": {-1: 1.0}}, "logit_bias is -1"),
    ({"logit_bias": {True: 1.0}}, "logit_bias is True"),
    ({"logit_bias": {5: 101.0}}, "logit_bias[5] is 101.0"),
    ({"logit_bias": {5: NAN}}, "logit_bias[5] is nan"),
    ({"logit_bias": {5: -INF}}, "logit_bias[5] is -inf"),
    (
        {"logit_bias": dict.fromkeys(range(301), 1.0)},
        "logit_bias has 301 entries, want at most 300",
    ),
    ({"max_tokens": 0}, "max_tokens is 0, want an integer >= 1"),
    ({"max_tokens": -5}, "max_tokens is -5"),
    ({"min_tokens": -1}, "min_tokens is -1, want an integer >= 0"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens is 5, want at most max_tokens, 4"),
    ({"stop": ("ok", "")}, "stop[1] has 0 bytes, want 1..256"),
    ({"stop": ("é" * 129,)}, "stop[0] has 258 bytes, want 1..256"),
    ({"stop": ("x",) * 17}, "stop has 17 entries, want at most 16"),
    ({"stop": "word"}, "stop is 'word', want a tuple of strings"),
    ({"stop": (3,)}, "stop[0] is 3, want a string"),
    ({"stop_token_ids": (1, VOCAB)}, "stop_token_ids[1] is 100"),
    ({"stop_token_ids": (-1,)}, "stop_token_ids[0] is -1"),
    ({"stop_token_ids": (1,) * 65}, "stop_token_ids has 65 entries, want at most 64"),
    ({"bad_words": ("",)}, "bad_words[0] has 0 bytes"),
    ({"bad_words": ("x",) * 65}, "bad_words has 65 entries, want at most 64"),
    ({"allowed_token_ids": (VOCAB,)}, "allowed_token_ids[0] is 100"),
    ({"allowed_token_ids": (1,) * 4097}, "allowed_token_ids has 4097 entries, want at most 4096"),
    (
        {"allowed_token_ids": (1,), "stop_token_ids": (1,), "min_tokens": 2},
        "allowed_token_ids is (1,), want an id that is no stop",
    ),
    ({"seed": -1}, "seed is -1, want an integer 0..18446744073709551615"),
    ({"seed": 2**64}, "seed is 18446744073709551616"),
    ({"logprobs": 21}, "logprobs is 21, want an integer 0..20"),
    ({"logprobs": -1}, "logprobs is -1"),
    ({"n": 0}, "n is 0, want an integer 1..16"),
    ({"n": 17}, "n is 17"),
    ({"n": 2, "temperature": 0.0}, "n is 2, want 1 at temperature 0"),
    ({"n": 2, "temperature": 1e-6}, "n is 2, want 1 at temperature 0"),
]


@pytest.mark.parametrize("values", GOOD, ids=repr)
def test_sampling_in_range_passes(values):
    sampling(**values)


@pytest.mark.parametrize(("values", "message"), BAD, ids=[message for _, message in BAD])
def test_sampling_out_of_range_is_refused_naming_field_and_value(values, message):
    with pytest.raises(InvalidRequestError) as caught:
        sampling(**values)
    assert f"sampling.{message}" in str(caught.value)
    name = message.split(" ", 1)[0].partition("[")[0]
    assert caught.value.field == f"sampling.{name}"


def test_every_sampling_field_with_a_range_has_a_bad_case():
    """No field is forgotten. Booleans have no range."""
    ranged = {f.name for f in fields(SamplingParams) if f.type != "bool"}
    assert {message.split(" ", 1)[0].partition("[")[0] for _, message in BAD} == ranged


def test_only_the_models_eos_allowed_before_min_tokens_is_refused():
    params = SamplingParams(allowed_token_ids=(7,), min_tokens=1)
    validation.validate_sampling(params, vocab_size=VOCAB)
    with pytest.raises(InvalidRequestError, match="allowed_token_ids"):
        validation.validate_sampling(params, vocab_size=VOCAB, eos_token_ids=(7,))
    ignoring = SamplingParams(allowed_token_ids=(7,), min_tokens=1, ignore_eos=True)
    validation.validate_sampling(ignoring, vocab_size=VOCAB, eos_token_ids=(7,))


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_strings_are_refused_where_there_is_no_tokenizer(name):
    params = SamplingParams(**{name: ("x",)})
    validation.validate_sampling(params, vocab_size=VOCAB)
    with pytest.raises(InvalidRequestError, match=f"sampling.{name} .*no tokenizer") as caught:
        validation.validate_sampling(params, vocab_size=VOCAB, has_tokenizer=False)
    assert caught.value.field == f"sampling.{name}"


@given(
    st.sampled_from(
        [
            ("temperature", lambda value: 0 <= value < INF),
            ("top_p", lambda value: 0 < value <= 1),
            ("min_p", lambda value: 0 <= value <= 1),
            ("repetition_penalty", lambda value: 0 < value < INF),
            ("presence_penalty", lambda value: -2 <= value <= 2),
        ]
    ),
    st.floats() | st.floats(-3, 3) | st.integers(),
)
def test_any_number_passes_exactly_if_it_is_in_range(case, value):
    name, is_good = case
    if is_good(value):
        sampling(**{name: value})
        return
    with pytest.raises(InvalidRequestError) as caught:
        sampling(**{name: value})
    assert f"sampling.{name} is {value!r}, want" in str(caught.value)
    assert caught.value.field == f"sampling.{name}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_draft_tokens": 8}, "num_draft_tokens is 8, want an integer 0..7"),
        ({"num_draft_tokens": -1}, "num_draft_tokens is -1"),
    ],
)
def test_speculation_out_of_range_is_refused(values, message):
    with pytest.raises(InvalidRequestError) as caught:
        speculation(**values)
    assert f"speculation.{message}" in str(caught.value)
    assert caught.value.field == "speculation.num_draft_tokens"


@pytest.mark.parametrize("values", [{}, {"num_draft_tokens": 0}, {"num_draft_tokens": 7}])
def test_speculation_in_range_passes(values):
    speculation(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"reference_token_ids": (1, 100)}, "reference_token_ids[1] is 100"),
        ({"reference_token_ids": (1,) * 33}, "reference_token_ids has 33 entries, want at most 32"),
        ({"synthetic_acceptance": NAN}, "synthetic_acceptance is nan"),
        ({"synthetic_acceptance": 1.1}, "synthetic_acceptance is 1.1"),
        ({"synthetic_acceptance": -0.1}, "synthetic_acceptance is -0.1"),
    ],
)
def test_debug_options_out_of_range_are_refused(values, message):
    with pytest.raises(InvalidRequestError) as caught:
        debug(**values)
    assert f"debug.{message}" in str(caught.value)
    assert caught.value.field == "debug." + message.split(" ", 1)[0].partition("[")[0]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"reference_token_ids": (99,) * 32, "synthetic_acceptance": 0.0},
        {"synthetic_acceptance": 1.0},
    ],
)
def test_debug_options_in_range_pass(values):
    debug(**values)


def test_a_prompt_may_fill_the_context_exactly():
    prompt([1] * 10, max_tokens=6)
    prompt([1] * 15, max_tokens=1)


def test_an_empty_prompt_is_refused():
    with pytest.raises(InvalidRequestError, match="prompt is empty") as caught:
        prompt([])
    assert caught.value.field == "prompt"


def test_prompt_and_max_tokens_over_the_context_name_both_numbers():
    with pytest.raises(InvalidRequestError) as caught:
        prompt([1] * 10, max_tokens=7)
    assert caught.value.field == "sampling.max_tokens"
    for number in ("10", "7", "17", "16"):
        assert number in str(caught.value)


@pytest.mark.parametrize("length", [16, 17, 1000])
def test_a_prompt_that_leaves_no_room_is_refused_naming_both_numbers(length):
    with pytest.raises(InvalidRequestError, match=f"prompt has {length} tokens.*16") as caught:
        prompt([1] * length)
    assert caught.value.field == "prompt"


@pytest.mark.parametrize("bad", [VOCAB, VOCAB + 5, -1, 2**40, True, 1.0, None])
def test_an_id_outside_the_vocabulary_is_named_with_its_place(bad):
    with pytest.raises(InvalidRequestError) as caught:
        prompt([1, 2, bad, 3])
    assert f"prompt[2] is {bad!r}, want an id below the vocabulary size 100" in str(caught.value)
    assert caught.value.field == "prompt"


def test_min_tokens_is_checked_against_the_default_of_max_tokens():
    with pytest.raises(InvalidRequestError, match="min_tokens is 5, want at most max_tokens, 4"):
        prompt([1], max_tokens=4, min_tokens=5)
    prompt([1], max_tokens=4, min_tokens=4)


def test_text_needs_a_character():
    validation.validate_text(" ", max_bytes=1)
    with pytest.raises(InvalidRequestError, match="text is empty"):
        validation.validate_text("", max_bytes=1)


def test_text_and_contents_that_can_never_fit_are_refused():
    validation.validate_text("é" * 5, max_bytes=10)
    with pytest.raises(InvalidRequestError, match=r"text has 12 bytes, want at most 10: .*context"):
        validation.validate_text("é" * 6, max_bytes=10)
    messages = [("user", "é" * 3), ("user", "é" * 3)]
    with pytest.raises(InvalidRequestError, match=r"chat\.messages has 12 bytes, want at most 10"):
        validation.validate_chat(messages, max_bytes=10)


@pytest.mark.parametrize(
    ("messages", "message", "field"),
    [
        ([], "chat.messages is empty", "chat.messages"),
        ([("user", "x")] * 4097, "chat.messages has 4097 entries", "chat.messages"),
        (
            [("user", "x"), ("tool", "y")],
            "chat.messages[1].role is 'tool', want one of system, user, assistant",
            "chat.messages",
        ),
    ],
)
def test_chats_out_of_range_are_refused(messages, message, field):
    with pytest.raises(InvalidRequestError) as caught:
        validation.validate_chat(messages, max_bytes=10)
    assert message in str(caught.value)
    assert caught.value.field == field


def test_chats_of_known_roles_pass():
    messages = [("system", ""), ("user", "x"), ("assistant", "y"), ("user", "z")]
    validation.validate_chat(messages, max_bytes=3)


def test_request_ids_have_at_most_128_characters():
    validation.validate_request_id("")
    validation.validate_request_id("é" * 128)
    with pytest.raises(InvalidRequestError, match="request_id has 129 characters") as caught:
        validation.validate_request_id("x" * 129)
    assert caught.value.field == "request_id"


def test_aborts_name_at_most_1024_requests():
    validation.validate_abort([])
    validation.validate_abort(["x"] * 1024)
    with pytest.raises(InvalidRequestError, match="request_ids has 1025 entries") as caught:
        validation.validate_abort(["x"] * 1025)
    assert caught.value.field == "request_ids"


def test_an_abort_has_no_secrets_or_one_per_id():
    validation.validate_abort(["x", "y"], [b"", b"t" * 16])
    with pytest.raises(InvalidRequestError, match="resume_tokens has 1 entries, want none or one"):
        validation.validate_abort(["x", "y"], [b"t" * 16])
    with pytest.raises(InvalidRequestError, match="resume_token has 3 bytes"):
        validation.validate_abort(["x"], [b"abc"])


def test_the_secret_of_a_request_has_16_to_64_bytes_and_is_never_quoted():
    for size in (0, 16, 64):
        validation.validate_resume_token(b"s" * size)
    for size in (1, 15, 65, 10**6):
        with pytest.raises(InvalidRequestError, match=f"has {size} bytes, want 16..64") as caught:
            validation.validate_resume_token(b"s" * size)
        assert caught.value.field == "resume_token"
        assert "sss" not in str(caught.value)


def test_a_priority_is_within_100_of_0():
    for priority in (-100, 0, 100):
        validation.validate_priority(priority)
    for priority in (-101, 101, True, 1.5):
        with pytest.raises(InvalidRequestError, match=rf"priority is {priority}, want") as caught:
            validation.validate_priority(priority)
        assert caught.value.field == "priority"


def test_a_cache_salt_has_at_most_128_bytes_and_is_never_quoted():
    for salt in ("", "x" * 128, "é" * 64):
        validation.validate_cache_salt(salt)
    for salt in ("x" * 129, "é" * 65):
        with pytest.raises(InvalidRequestError, match="bytes, want at most 128") as caught:
            validation.validate_cache_salt(salt)
        assert caught.value.field == "cache_salt"
        assert salt[:3] not in str(caught.value)
