from __future__ import annotations

import asyncio

import pytest

from minedraft.api import GenerationRequest, Message, ResumedSample
from minedraft.errors import InvalidRequestError
from minedraft.services.coordinator.intake import (
    Intake,
    derive_seed,
    resolve_max_tokens,
    sample_id,
)
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.types import FinishReason, ModelInfo, SamplingParams, Speculation
from tests.inline_texts import InlineTexts
from tests.tiny_tokenizers import byte_level, write

PROMPT = (5, 6, 7)
NOTHING = object()
"""A tokenizer that must not be used."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return Tokenizer.from_directory(write(byte_level(), tmp_path_factory.mktemp("tokenizer")))


def model(max_model_len: int = 100, num_blocks: int = 100) -> ModelInfo:
    return ModelInfo(
        "m", 500, max_model_len, "f", "float32", eos_token_ids=(1,), num_blocks=num_blocks
    )


def intake(tokenizer=None, **more) -> Intake:
    texts = InlineTexts(tokenizer) if tokenizer is not None else None
    return Intake(tokenizer, texts, model(**more), max_draft_tokens=8)


def ask(**sampling) -> GenerationRequest:
    return GenerationRequest(token_ids=PROMPT, sampling=SamplingParams(**sampling))


async def refusal(request: GenerationRequest, tokenizer=None) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        await intake(tokenizer).accept(request)
    return caught.value.field


# -- what comes of a request ----------------------------------------------------------------


async def test_a_request_becomes_a_sample():
    request = GenerationRequest(
        token_ids=PROMPT,
        sampling=SamplingParams(temperature=0.5, max_tokens=9, seed=3, stop_token_ids=(8,)),
        speculation=Speculation(2),
        request_id="r",
    )
    request_id, seed, num_prompt, (sample,), stream = await intake().accept(request)
    assert (request_id, seed, num_prompt) == ("r", 3, 3)
    assert sample.request.request_id == "0#r"
    assert sample.request.prompt_token_ids == PROMPT
    assert sample.request.max_tokens == 9
    assert sample.request.speculation == Speculation(2)
    assert sample.request.params.temperature == 0.5
    assert sample.request.params.seed == 3
    assert sample.request.params.stop_ids == (1, 8)
    assert sample.stream is stream
    assert stream._num_open == 1
    assert sample.finish is None


async def test_ignored_eos_stops_nothing():
    *_, (sample,), _ = await intake().accept(ask(ignore_eos=True, stop_token_ids=(8,)))
    assert sample.request.params.stop_ids == (8,)
    assert sample.processor.push((1,)).finish is None


async def test_an_id_and_a_seed_are_drawn_if_there_are_none():
    one = await intake().accept(ask())
    two = await intake().accept(ask())
    assert one[0].startswith("gen-")
    assert one[0] != two[0]
    assert one[1] != two[1]
    assert 0 <= one[1] < 2**64


async def test_a_seed_of_0_is_a_seed():
    assert (await intake().accept(ask(seed=0)))[1] == 0


async def test_samples_have_ids_and_seeds_of_their_own_and_one_stream():
    *_, samples, stream = await intake().accept(
        GenerationRequest(
            token_ids=PROMPT, sampling=SamplingParams(n=3, seed=2**64 - 1), request_id="r"
        )
    )
    assert [s.request.request_id for s in samples] == ["0#r", "1#r", "2#r"]
    assert [s.index for s in samples] == [0, 1, 2]
    seeds = [s.request.params.seed for s in samples]
    assert seeds[0] == 2**64 - 1
    assert len(set(seeds)) == 3
    assert {id(s.stream) for s in samples} == {id(stream)}
    assert stream._num_open == 3


def test_derived_seeds_are_the_same_on_every_machine():
    assert derive_seed(7, 0) == 7
    assert derive_seed(7, 1) == 14818979533484651488
    assert len({derive_seed(s, i) for s in range(20) for i in range(16)}) == 320
    assert all(0 <= derive_seed(2**64 - 1, i) < 2**64 for i in range(16))


def test_no_two_requests_share_the_id_of_a_sample():
    asked = ["r", "#r", "0#r", "1#r", "r#1", "r#1#1", "1", "#", "1#"]
    ids = {sample_id(request_id, index) for request_id in asked for index in (0, 1, 10)}
    assert len(ids) == 3 * len(asked)


async def test_max_tokens_is_filled_in_from_what_the_context_leaves():
    *_, (sample,), _ = await intake(max_model_len=10).accept(ask())
    assert sample.request.max_tokens == 7
    *_, (sample,), _ = await intake().accept(ask())
    assert sample.request.max_tokens == 16


async def test_max_tokens_is_filled_in_from_what_the_pool_can_hold(tokenizer):
    chat = GenerationRequest(messages=(Message("user", "Hello"),))
    *_, (sample,), _ = await intake(tokenizer, num_blocks=4).accept(chat)
    assert sample.request.max_len == 4 * 16 + 1
    *_, (sample,), _ = await intake(num_blocks=1).accept(ask())
    assert sample.request.max_len == 1 * 16 + 1


async def test_top_k_beyond_the_vocabulary_is_all_of_it():
    *_, (sample,), _ = await intake().accept(ask(top_k=2**31))
    assert sample.request.params.top_k == 500


# -- text -----------------------------------------------------------------------------------


async def test_text_and_chat_are_tokenized(tokenizer):
    *_, (sample,), _ = await intake(tokenizer).accept(GenerationRequest(text="Hello world"))
    assert list(sample.request.prompt_token_ids) == tokenizer.encode("Hello world")
    chat = GenerationRequest(messages=(Message("user", "Hello"),))
    *_, (sample,), _ = await intake(tokenizer).accept(chat)
    assert list(sample.request.prompt_token_ids) == tokenizer.encode_chat([("user", "Hello")])
    assert sample.request.max_tokens == 100 - len(sample.request.prompt_token_ids)


async def test_bad_words_become_token_sequences(tokenizer):
    *_, (sample,), _ = await intake(tokenizer).accept(ask(bad_words=("world",)))
    assert sample.request.params.bad_words == tuple(
        tuple(ids) for ids in tokenizer.encode_bad_word("world")
    )


async def test_text_without_a_tokenizer_is_refused():
    assert await refusal(GenerationRequest(text="Hello")) == "prompt"
    assert await refusal(GenerationRequest(messages=(Message("user", "x"),))) == "prompt"
    with pytest.raises(InvalidRequestError, match="restart the coordinator with --tokenizer DIR"):
        await intake().accept(GenerationRequest(text="Hello"))


# -- refusals, in order ---------------------------------------------------------------------


async def test_values_are_looked_at_before_the_prompt_is_tokenized():
    bad = GenerationRequest(text="x", sampling=SamplingParams(top_p=7.0), request_id="r" * 999)
    assert await refusal(bad, NOTHING) == "request_id"
    bad = GenerationRequest(text="x", sampling=SamplingParams(top_p=7.0))
    assert await refusal(bad, NOTHING) == "sampling.top_p"
    bad = GenerationRequest(text="x", speculation=Speculation(99))
    assert (await refusal(bad, NOTHING)).startswith("speculation")


async def test_a_prompt_that_does_not_fit_is_refused():
    with pytest.raises(InvalidRequestError, match="101"):
        await intake().accept(GenerationRequest(token_ids=(5,) * 101))
    with pytest.raises(InvalidRequestError):
        await intake().accept(GenerationRequest(token_ids=(500,)))
    with pytest.raises(InvalidRequestError):
        await intake().accept(GenerationRequest(token_ids=()))


# -- resumed --------------------------------------------------------------------------------


def resumed(*samples: ResumedSample, **sampling) -> GenerationRequest:
    return GenerationRequest(
        token_ids=PROMPT,
        sampling=SamplingParams(**{"seed": 1, "max_tokens": 5, **sampling}),
        resumed=samples,
    )


async def test_a_sample_goes_on_from_what_its_caller_holds():
    *_, (sample,), _ = await intake().accept(resumed(ResumedSample(0, (10, 11))))
    assert sample.request.output_token_ids == [10, 11]
    assert sample.request.max_token_id == 11
    assert sample.finish is None
    assert sample.processor.num_tokens == 2


async def test_text_that_the_caller_holds_is_not_sent_again(tokenizer):
    ids = tuple(tokenizer.encode("Hello world"))
    *_, (sample,), _ = await intake(tokenizer).accept(
        resumed(ResumedSample(0, ids[:-1]), max_tokens=50)
    )
    text = sample.processor.push(ids[-1:]).text
    assert text == tokenizer.decode(ids).removeprefix(tokenizer.decode(ids[:-1]))


@pytest.mark.parametrize(
    ("held", "reason", "num_kept"),
    [
        ((10, 11, 12, 13, 14), FinishReason.LENGTH, 5),
        ((10, 1), FinishReason.STOP, 2),
        ((10, 1, 12), FinishReason.STOP, 2),
    ],
)
async def test_an_output_that_is_whole_lacks_only_its_end(held, reason, num_kept):
    *_, (sample,), stream = await intake().accept(resumed(ResumedSample(0, held)))
    assert sample.finish is not None
    assert sample.finish.reason is reason
    assert sample.request.output_token_ids == list(held[:num_kept])
    assert stream._num_open == 1


async def test_samples_that_ended_are_not_run_again():
    *_, samples, stream = await intake().accept(
        resumed(ResumedSample(0, (10,), is_finished=True), ResumedSample(2, (11,)), n=3)
    )
    assert [s.index for s in samples] == [1, 2]
    assert [s.request.output_token_ids for s in samples] == [[], [11]]
    assert [s.request.params.seed for s in samples] == [derive_seed(1, 1), derive_seed(1, 2)]
    assert stream._num_open == 2


@pytest.mark.parametrize(
    "request_",
    [
        resumed(ResumedSample(1, ())),
        resumed(ResumedSample(0, ()), ResumedSample(0, ())),
        resumed(ResumedSample(0, (5,) * 6)),
        resumed(ResumedSample(0, (500,))),
        resumed(ResumedSample(0, (5,)), seed=None),
    ],
    ids=["index", "twice", "too many tokens", "an id", "no seed"],
)
async def test_what_cannot_have_been_held_is_refused(request_):
    assert await refusal(request_)


class Clock:
    """Each look at it takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


async def test_a_long_resumed_output_is_walked_in_slices(monkeypatch):
    """And one such output at a time, however many callers resume."""
    monkeypatch.setattr("minedraft.services.coordinator.intake.time.perf_counter", Clock())
    walk = asyncio.Lock()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def accept(number: int):
        door = Intake(None, None, model(max_model_len=2000), max_draft_tokens=8, walk=walk)
        held = ResumedSample(0, tuple(10 + (i + number) % 400 for i in range(960)))
        return door.accept(resumed(held, max_tokens=1000))

    watching = asyncio.create_task(others())
    answers = [asyncio.create_task(accept(number)) for number in range(2)]
    await asyncio.wait(answers)
    watching.cancel()
    for number, answer in enumerate(answers):
        *_, (sample,), _ = answer.result()
        assert sample.request.output_token_ids == [10 + (i + number) % 400 for i in range(960)]
    num_looks = 2 * 960 / 8
    assert turns > num_looks / 4  # a slice is two looks long


@pytest.mark.parametrize(
    ("given_", "num_prompt", "is_chat", "expected"),
    [
        (None, 10, False, 16),
        (None, 95, False, 5),
        (None, 10, True, 90),
        (None, 100, False, 1),
        (None, 100, True, 1),
        (None, 500, True, 1),
        (7, 10, False, 7),
        (500, 10, True, 500),
    ],
)
def test_unset_max_tokens_is_16_for_text_and_the_rest_of_the_context_for_chat(
    given_, num_prompt, is_chat, expected
):
    resolved = resolve_max_tokens(
        given_, num_prompt_tokens=num_prompt, max_len=100, is_chat=is_chat
    )
    assert resolved == expected
