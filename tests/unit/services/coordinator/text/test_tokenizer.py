"""A model directory's tokenizer: what it reads, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from minedraft.errors import InvalidRequestError, ModelError
from minedraft.fingerprint import tokenizer_fingerprint
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from tests.tiny_tokenizers import BOS, EOS, KINDS, TURN, byte_level, sentencepiece, write


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return request.param


@pytest.fixture
def directory(tmp_path, kind):
    return write(KINDS[kind](), tmp_path)


def load(tmp_path, build=byte_level, files=(), **config):
    directory = write(build(), tmp_path, **config)
    for name, document in dict(files).items():
        text = document if isinstance(document, str) else json.dumps(document)
        (directory / name).write_text(text, encoding="utf-8")
    return Tokenizer.from_directory(directory)


def test_a_directory_without_a_tokenizer_is_refused_by_name(tmp_path):
    with pytest.raises(ModelError, match=rf"{tmp_path}: has no tokenizer\.json"):
        Tokenizer.from_directory(tmp_path)
    with pytest.raises(ModelError, match="nowhere"):
        Tokenizer.from_directory(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"model": {"type": "BPE", "vocab": {}}}', "\x00"]
)
def test_a_broken_tokenizer_is_refused_by_name(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=str(tmp_path)):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}},
        {"decoder": {"type": "Nothing"}},
        {"decoder": ["ByteLevel"]},
        {"post_processor": 3},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_the_library_panics_at_or_refuses_is_a_model_error_in_one_line(tmp_path, change):
    document = json.loads(byte_level().to_str()) | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match=r"tokenizer\.json: ") as caught:
        Tokenizer.from_directory(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_stop_of_the_process_is_no_model_error(tmp_path, monkeypatch):
    def stopped(_content):
        raise KeyboardInterrupt

    directory = write(byte_level(), tmp_path)
    monkeypatch.setattr("tokenizers.Tokenizer.from_buffer", stopped)
    with pytest.raises(KeyboardInterrupt):
        Tokenizer.from_directory(directory)


def test_tokens_that_only_other_files_name_are_found_in_text_and_shown(tmp_path):
    size = byte_level().get_vocab_size()
    listed = {str(size): {"content": "<|im_end|>", "special": True},
              str(size + 1): {"content": "<tool>"}}  # fmt: skip
    tokenizer = load(tmp_path, eos_token="<|im_end|>", added_tokens_decoder=listed)
    ids = tokenizer.encode("hello<tool><|im_end|>", parse_special_tokens=True)
    assert ids[-2:] == [size + 1, size]
    assert tokenizer.decode(ids) == "hello<tool>"
    assert size in tokenizer.special_ids
    assert tokenizer.vocab_size == size + 2


def test_named_templates_without_a_default_refuse_chats_by_name_and_serve_text(tmp_path):
    named = [{"name": name, "template": "x"} for name in ("rag", "tool_use")]
    tokenizer = load(tmp_path, chat_template=named)
    assert not tokenizer.has_chat_template
    assert tokenizer.encode("hello")
    with pytest.raises(
        InvalidRequestError, match=r"templates \(rag, tool_use\), but none named default"
    ):
        tokenizer.encode_chat([("user", "hi")])


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "config.json"])
@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_broken_config_is_refused_by_name(tmp_path, name, content):
    with pytest.raises(ModelError, match=name):
        load(tmp_path, files={name: content})


def test_a_broken_chat_template_is_refused_by_directory(tmp_path):
    with pytest.raises(ModelError, match=rf"{tmp_path}: chat template"):
        load(tmp_path, chat_template="{% for %}")


def test_text_comes_back(directory):
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.decode(tokenizer.encode("hello world")) == "hello world"


def test_special_tokens_are_added_as_the_post_processor_says(tmp_path):
    llama = load(tmp_path / "a", sentencepiece)
    gpt = load(tmp_path / "b")
    assert llama.encode("hi")[0] == 1
    assert llama.decode(llama.encode("hi"), skip_special_tokens=False) == f"{BOS} hi"
    assert not gpt.special_ids & set(gpt.encode("hi"))


def test_truncation_and_padding_of_the_training_are_off(tmp_path):
    backend = byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=8)
    tokenizer = load(tmp_path, lambda: backend)
    text = "the quick brown fox jumps over the lazy dog" * 3
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("a")) == 1


def test_vocabulary_size_counts_added_tokens(tmp_path):
    backend = byte_level()
    tokenizer = load(tmp_path, lambda: backend)
    assert tokenizer.vocab_size == backend.get_vocab_size(with_added_tokens=True)
    assert tokenizer.token(tokenizer.vocab_size - 1) == "ünder scored"
    assert tokenizer.token(tokenizer.vocab_size) is None
    assert tokenizer.token(-1) is None


def test_special_ids_are_the_special_added_tokens_only(tmp_path):
    tokenizer = load(tmp_path)
    assert {tokenizer.token(index) for index in tokenizer.special_ids} == {BOS, EOS, TURN}


def test_the_fingerprint_is_the_workers(directory):
    assert Tokenizer.from_directory(directory).fingerprint == tokenizer_fingerprint(directory)


def test_padded_ids_decode_to_nothing(directory):
    tokenizer = Tokenizer.from_directory(directory)
    beyond = [tokenizer.vocab_size, 151_935, 2**31, 2**40, -1]
    assert tokenizer.decode(beyond) == ""
    ids = tokenizer.encode("hello")
    assert tokenizer.decode([*ids, *beyond]) == tokenizer.decode(ids)
    assert [tokenizer.token_bytes(index) for index in beyond] == [b""] * 5


def test_a_part_of_a_character_has_its_real_bytes(tmp_path):
    for name, build in {"a": byte_level, "b": sentencepiece}.items():
        tokenizer = load(tmp_path / name, build)
        ids = [index for index in tokenizer.encode("🦊") if index not in tokenizer.special_ids]
        pieces = [tokenizer.token_bytes(index) for index in ids]
        assert b"".join(pieces).lstrip() == "🦊".encode()
        assert max(map(len, pieces)) < 4  # no piece is all of it


def test_every_id_has_bytes_or_text(directory):
    """Never nothing for both."""
    tokenizer = Tokenizer.from_directory(directory)
    assert all(tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size))


def test_bytes_are_the_same_when_asked_again(tmp_path):
    tokenizer = load(tmp_path)
    first = [tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]
    assert first == [tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]


def test_a_chat_is_formatted_and_its_special_tokens_are_tokens(tmp_path):
    tokenizer = load(tmp_path, sentencepiece)
    assert tokenizer.has_chat_template
    ids = tokenizer.encode_chat([("user", "hello")])
    turn = tokenizer.encode(TURN, parse_special_tokens=True)[-1]
    assert ids.count(turn) == 2
    assert 1 not in ids  # the template asked for no BOS, so none is added
    text = tokenizer.decode(ids, skip_special_tokens=False).replace(" ", "")
    assert text == f"{TURN}user\nhello{EOS}\n{TURN}assistant\n"


def test_a_chat_without_a_template_is_refused(tmp_path):
    tokenizer = load(tmp_path, chat_template=None)
    assert not tokenizer.has_chat_template
    with pytest.raises(InvalidRequestError, match="no chat template") as caught:
        tokenizer.encode_chat([("user", "hello")])
    assert caught.value.field == "chat"


def test_a_bad_word_is_found_at_the_start_of_a_word_and_inside_one(directory, kind):
    tokenizer = Tokenizer.from_directory(directory)
    forms = tokenizer.encode_bad_word(" world")
    assert forms == tokenizer.encode_bad_word("world")
    assert len(forms) == len(set(forms))
    texts = {b"".join(map(tokenizer.token_bytes, form)) for form in forms}
    assert b"world" in texts
    if kind != "wordpiece":  # its tokens have no spaces
        assert b" world" in texts
    assert not any(tokenizer.special_ids & set(form) for form in forms)


def test_a_bad_word_of_spaces_is_honoured(tmp_path):
    assert load(tmp_path).encode_bad_word("  ")


def test_a_bad_word_that_spells_nothing_is_refused(tmp_path):
    tokenizer = load(tmp_path, KINDS["wordpiece"])
    with pytest.raises(InvalidRequestError, match="spells no token") as caught:
        tokenizer.encode_bad_word(" ")
    assert caught.value.field == "sampling.bad_words"


def test_text_that_is_no_unicode_is_refused(tmp_path):
    with pytest.raises(InvalidRequestError, match=r"text has '\\ud800' at 1") as caught:
        load(tmp_path).encode("a\ud800")
    assert caught.value.field == "text"


def test_code_of_a_model_is_never_run(tmp_path):
    canary = tmp_path / "ran"
    code = f"open({str(canary)!r}, 'w').close()"
    files = {
        "tokenization_custom.py": code,
        "config.json": {"auto_map": {"AutoTokenizer": "tokenization_custom.Custom"}},
    }
    load(tmp_path, files=files, auto_map={"AutoTokenizer": ["tokenization_custom.Custom", None]})
    assert not canary.exists()


def test_the_text_side_loads_neither_torch_nor_transformers(tmp_path):
    write(byte_level(), tmp_path)
    code = f"""
import sys
from minedraft.services.coordinator.text import output
from minedraft.services.coordinator.text import tokenizer
from minedraft.services.coordinator.text import detokenizer
from minedraft.services.coordinator.text import token_pieces
from minedraft.services.coordinator.text import stop_strings
from minedraft.services.coordinator.text import chat_template
from minedraft import fingerprint, validation
from minedraft.types import SamplingParams
loaded = tokenizer.Tokenizer.from_directory({str(tmp_path)!r})
ids = loaded.encode_chat([("user", "hello")])
done = output.OutputProcessor(loaded, ids, SamplingParams(), (), (1,), 3).push(ids)
assert done.finish is not None
heavy = {{"torch", "transformers", "safetensors", "numpy", "grpc"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=15)
