from __future__ import annotations

import pytest

from minedraft.api import Delta, Finished, Message, Started, TokenizeOrder
from minedraft.errors import InvalidRequestError
from minedraft.services.coordinator.text import tokenization as module
from minedraft.services.coordinator.text.tokenization import Tokenization
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.types import FinishReason, TokenLogprobs
from tests.inline_texts import InlineTexts
from tests.tiny_models import write_tokenizer

TEXT = "the fox <|im_end|> \U0001f600"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(directory)
    return Tokenizer.from_directory(directory)


@pytest.fixture
def both(tokenizer):
    return Tokenization(tokenizer, InlineTexts(tokenizer))


async def test_a_text_has_the_ids_that_a_prompt_of_it_has(both, tokenizer):
    for parse in (True, False):
        order = TokenizeOrder(text=TEXT, parse_special_tokens=parse)
        assert list(await both.tokenize(order)) == tokenizer.encode(
            TEXT, parse_special_tokens=parse
        )


async def test_a_chat_has_the_ids_that_a_prompt_of_it_has(both, tokenizer):
    order = TokenizeOrder(messages=(Message("user", TEXT),))
    assert list(await both.tokenize(order)) == tokenizer.encode_chat([("user", TEXT)])


async def test_an_empty_text_is_no_error_but_a_chat_without_messages_is(both):
    assert await both.tokenize(TokenizeOrder(text="", add_special_tokens=False)) == ()
    with pytest.raises(InvalidRequestError, match="empty"):
        await both.tokenize(TokenizeOrder(messages=()))
    with pytest.raises(InvalidRequestError, match="role"):
        await both.tokenize(TokenizeOrder(messages=(Message("tool", "x"),)))


async def test_ids_have_their_text_and_padding_has_none(both, tokenizer):
    ids = tuple(tokenizer.encode(TEXT, parse_special_tokens=True))
    found = await both.detokenize((*ids, 10**5), skip_special_tokens=False)
    assert found == tokenizer.decode(ids, skip_special_tokens=False)
    assert "im_end" not in await both.detokenize(ids, skip_special_tokens=True)
    assert await both.detokenize((), skip_special_tokens=False) == ""


async def test_sizes_are_bounded_both_ways(both, tokenizer, monkeypatch):
    order = TokenizeOrder(text="x" * (4 * 2**20 + 1))
    with pytest.raises(InvalidRequestError, match="text has 4194305 bytes"):
        await both.tokenize(order)
    monkeypatch.setattr(module, "MAX_TOKENIZED", 3)
    with pytest.raises(InvalidRequestError, match="token_ids has 4 entries, want at most 3"):
        await both.detokenize((1, 2, 3, 4), skip_special_tokens=False)
    with pytest.raises(InvalidRequestError, match=r"text has \d+ tokens, want at most 3"):
        await both.tokenize(TokenizeOrder(text="the quick brown fox jumps over"))
    monkeypatch.setattr(module, "_MAX_ANSWER_BYTES", 2)
    with pytest.raises(InvalidRequestError, match="too much text"):
        await both.detokenize(tuple(tokenizer.encode("fox"))[:3], skip_special_tokens=False)


async def test_an_id_that_no_vocabulary_has_is_refused(both):
    with pytest.raises(InvalidRequestError, match="4194304, want ids below"):
        await both.detokenize((5, 2**22), skip_special_tokens=False)


def test_a_client_learns_the_template_and_the_named_tokens(both, tokenizer):
    info = both.info()
    assert info.vocab_size == tokenizer.vocab_size
    assert "im_start" in info.chat_template
    assert info.named_tokens["eos_token"] == "<|im_end|>"


async def test_without_a_tokenizer_all_of_it_is_refused_with_the_remedy():
    nothing = Tokenization(None, None)
    for call in (
        lambda: nothing.tokenize(TokenizeOrder(text="x")),
        lambda: nothing.detokenize((1,), skip_special_tokens=False),
    ):
        with pytest.raises(InvalidRequestError, match="--tokenizer DIR"):
            await call()
    with pytest.raises(InvalidRequestError, match="--tokenizer DIR"):
        nothing.info()


def test_log_probabilities_have_the_bytes_of_their_tokens(both, tokenizer):
    first, second = tokenizer.encode("\U0001f600")[:2]
    entry = TokenLogprobs(first, -0.5, ((first, -0.5), (second, -1.0), (10**6, -2.0)))
    spelled = both.spelled(Delta(0, (first,), "", (entry,)))
    (found,) = spelled.logprobs
    assert found.token_bytes == tokenizer.token_bytes(first) != b""
    assert found.top_bytes == (found.token_bytes, tokenizer.token_bytes(second), b"")
    assert (found.token_id, found.logprob, found.top) == (first, -0.5, entry.top)


def test_other_events_are_left_as_they_are(both):
    for event in (Started("r", 1, 1), Delta(0, (1,), "x"), Finished(0, FinishReason.STOP)):
        assert both.spelled(event) is event
    entry = (TokenLogprobs(1, -1.0),)
    assert Tokenization(None, None).spelled(Delta(0, (1,), "", entry)).logprobs == entry
