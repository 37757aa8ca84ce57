"""Two directories speak the same tokens or they do not."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time

import pytest

from minedraft.errors import ModelError
from minedraft.fingerprint import tokenizer_fingerprint, weights_fingerprint
from tests.tiny_tokenizers import KINDS, byte_level, sentencepiece, write


def rewrite(directory, change):
    file = directory / "tokenizer.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    change(document)
    file.write_text(json.dumps(document, indent=7, ensure_ascii=True), encoding="utf-8")


def test_it_is_64_hex_digits(tmp_path):
    value = tokenizer_fingerprint(write(byte_level(), tmp_path))
    assert len(value) == 64
    assert set(value) <= set("0123456789abcdef")


def test_a_directory_without_a_tokenizer_has_an_empty_one(tmp_path):
    assert tokenizer_fingerprint(tmp_path) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_formatting_order_and_unrelated_settings_do_not_matter(tmp_path, kind):
    one = write(KINDS[kind](), tmp_path / "one")
    two = write(KINDS[kind](), tmp_path / "two", chat_template=None)

    def shuffle(document):
        vocab = document["model"]["vocab"]
        document["model"]["vocab"] = dict(reversed(vocab.items()))
        document["added_tokens"].reverse()
        document["truncation"] = None
        document["normalizer"] = None

    rewrite(two, shuffle)
    assert (one / "tokenizer.json").read_bytes() != (two / "tokenizer.json").read_bytes()
    assert tokenizer_fingerprint(one) == tokenizer_fingerprint(two)


def swap_two_ids(document):
    vocab = document["model"]["vocab"]
    first, second = list(vocab)[-2:]
    vocab[first], vocab[second] = vocab[second], vocab[first]


def rename_an_added_token(document):
    document["added_tokens"][-1]["content"] = "other"


def make_a_token_special(document):
    document["added_tokens"][-1]["special"] = True


def drop_a_token(document):
    document["model"]["vocab"].popitem()
    document["added_tokens"][-1]["id"] -= 1


@pytest.mark.parametrize(
    "change", [swap_two_ids, rename_an_added_token, make_a_token_special, drop_a_token]
)
def test_any_change_of_what_an_id_means_shows(tmp_path, change):
    one, two = write(byte_level(), tmp_path / "one"), write(byte_level(), tmp_path / "two")
    rewrite(two, change)
    assert tokenizer_fingerprint(one) != tokenizer_fingerprint(two)


def test_different_tokenizers_differ(tmp_path):
    prints = {
        tokenizer_fingerprint(write(build(), tmp_path / name)) for name, build in KINDS.items()
    }
    # Gemma's kind has other merges and normalizers than Llama's but is trained to other tokens too.
    assert len(prints) == len(KINDS)


def test_a_unigram_vocabulary_is_read_by_position(tmp_path):
    def document(*tokens):
        return {"model": {"type": "Unigram", "vocab": [[token, -1.0] for token in tokens]}}

    for name, tokens in {"a": ("x", "y"), "b": ("x", "y"), "c": ("y", "x")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(document(*tokens)))
    assert tokenizer_fingerprint(tmp_path / "a") == tokenizer_fingerprint(tmp_path / "b")
    assert tokenizer_fingerprint(tmp_path / "a") != tokenizer_fingerprint(tmp_path / "c")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"model": {"vocab": 3}}', "\xff"])
def test_a_broken_file_is_a_model_error_naming_it(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        tokenizer_fingerprint(tmp_path)


def test_150_thousand_tokens_are_cheap(tmp_path):
    vocab = {f"Ġtoken{index}é": index for index in range(150_000)}
    merges = [[f"Ġtok{index}", f"en{index}"] for index in range(150_000)]
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"vocab": vocab, "merges": merges}, "added_tokens": []}))
    times = []
    for _ in range(8):
        begin = time.process_time()
        tokenizer_fingerprint(tmp_path)
        times.append(time.process_time() - begin)
    assert min(times) < 0.5


def test_it_loads_neither_torch_nor_the_tokenizers_library():
    code = (
        "import sys, minedraft.fingerprint, minedraft.validation\n"
        "assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=15)


def test_a_space_variant_of_the_same_family_is_seen(tmp_path):
    one, two = write(sentencepiece(), tmp_path / "one"), write(sentencepiece(), tmp_path / "two")
    rewrite(two, lambda document: document["model"]["vocab"].update({"▁new": 9999}))
    assert tokenizer_fingerprint(one) != tokenizer_fingerprint(two)


def weights(directory, *, codes=b"\x12" * (1 << 20), scales=b"\x01" * 4096, config="{}"):
    """A directory with large codes and small scales, which fall between pieces of the file."""
    directory.mkdir()
    (directory / "config.json").write_text(config)
    header = {
        "a.qweight": {"dtype": "U8", "shape": [len(codes)], "data_offsets": [0, len(codes)]},
        "a.scales": {
            "dtype": "U8",
            "shape": [len(scales)],
            "data_offsets": [len(codes), len(codes) + len(scales)],
        },
    }
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + codes + scales
    (directory / "model.safetensors").write_bytes(content)
    return directory


QUANTISED = json.dumps({"quantization_config": {"quant_method": "gptq"}})


def test_two_quantisations_of_one_model_differ_though_their_codes_do_not(tmp_path):
    one = weights(tmp_path / "one", config=QUANTISED)
    for at in (0, 2000, 4095):
        scales = bytearray(b"\x01" * 4096)
        scales[at] = 2
        other = weights(tmp_path / str(at), config=QUANTISED, scales=bytes(scales))
        assert weights_fingerprint(one) != weights_fingerprint(other)
    assert weights_fingerprint(one) != weights_fingerprint(weights(tmp_path / "plain"))


def test_two_gguf_files_differ_by_a_scale(tmp_path):
    import gguf
    import numpy as np

    prints = set()
    for name, last in (("one", 1.0), ("two", 1.0), ("three", 2.0)):
        (tmp_path / name).mkdir()
        writer = gguf.GGUFWriter(tmp_path / name / "m.gguf", "llama")
        writer.add_tensor("large", np.zeros(1 << 18, np.float32))
        writer.add_tensor("small", np.array([1.0, last], np.float32))
        writer.add_tensor("last", np.zeros(1 << 18, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        prints.add(weights_fingerprint(tmp_path / name))
    assert len(prints) == 2


def test_the_fingerprint_of_weights_that_are_not_quantised_is_what_it_was(tmp_path):
    """Coordinators compare it with that of workers of other versions."""
    for config in ("{}", '{"quantization_config": null}'):
        directory = weights(tmp_path / str(len(config)), config=config)
        content = (directory / "model.safetensors").read_bytes()
        digest = hashlib.sha256(config.encode() + f"model.safetensors:{len(content)}".encode())
        for piece in range(64):
            begin = len(content) * piece // 64
            digest.update(content[begin : begin + 4096])
        assert weights_fingerprint(directory) == digest.hexdigest()
