from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import IncompatibleWorkerError
from minedraft.plans import PROTOCOL_VERSION, WorkerIdentity, WorkerInfo
from minedraft.services.coordinator.workers.handshake import (
    check_draft_model,
    check_drafter,
    check_verifier,
)
from minedraft.types import ModelInfo

MODEL = ModelInfo("target", 500, 100, "a" * 64, "float32", num_blocks=10)


def info(*, version: int = PROTOCOL_VERSION, **model) -> WorkerInfo:
    identity = WorkerIdentity("w", version, 0, 0, "v")
    return WorkerInfo(identity, replace(MODEL, **model), ("grpc",), "coupled")


def test_a_verifier_fits_a_coordinator_with_its_tokenizer_or_without_any():
    check_verifier(info(), tokenizer_fingerprint="a" * 64, known=None)
    check_verifier(info(), tokenizer_fingerprint="", known=None)
    check_verifier(info(num_blocks=99, block_size=1), tokenizer_fingerprint="", known=MODEL)


def test_a_verifier_with_another_tokenizer_is_refused():
    with pytest.raises(IncompatibleWorkerError, match=r"fingerprint aaaaaaaaaaaa, .* has bbbb"):
        check_verifier(info(), tokenizer_fingerprint="b" * 64, known=None)


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 501},
        {"max_model_len": 99},
        {"dtype": "bfloat16"},
        {"tokenizer_fingerprint": "b"},
    ],
    ids=str,
)
def test_a_verifier_that_comes_back_with_another_model_is_refused(change):
    with pytest.raises(IncompatibleWorkerError, match="came back with another model"):
        check_verifier(info(**change), tokenizer_fingerprint="", known=MODEL)


def test_a_drafter_may_have_a_padded_vocabulary_and_a_model_of_its_own():
    check_drafter(info(name="draft", vocab_size=512, max_model_len=7, dtype="bfloat16"), MODEL)


def test_a_vocabulary_may_be_padded_but_has_every_id_of_the_tokenizer():
    check_verifier(info(), tokenizer_fingerprint="", known=None, num_token_ids=500)
    check_drafter(info(vocab_size=512), MODEL, 500)
    with pytest.raises(IncompatibleWorkerError, match=r"verifier .* vocab_size=500, .* 501 ids"):
        check_verifier(info(), tokenizer_fingerprint="", known=None, num_token_ids=501)
    with pytest.raises(IncompatibleWorkerError, match=r"drafter .* vocab_size=499, .* 500 ids"):
        check_drafter(info(vocab_size=499), MODEL, 500)


@pytest.mark.parametrize("size", ["vocab_size", "max_model_len"])
def test_a_model_without_a_size_is_refused_on_both_sides(size):
    nothing = info(**{size: 0})
    with pytest.raises(IncompatibleWorkerError, match=f"verifier target: {size}=0"):
        check_verifier(nothing, tokenizer_fingerprint="", known=None)
    with pytest.raises(IncompatibleWorkerError, match=f"drafter target: {size}=0"):
        check_drafter(nothing, MODEL)


def test_a_drafter_with_another_vocabulary_is_refused_with_what_differs():
    with pytest.raises(IncompatibleWorkerError) as caught:
        check_drafter(info(name="draft", vocab_size=7, tokenizer_fingerprint="c" * 64), MODEL)
    for part in ("draft", "target", "c" * 12, "a" * 12, "7", "500"):
        assert part in str(caught.value)
    with pytest.raises(IncompatibleWorkerError):
        check_draft_model(replace(MODEL, tokenizer_fingerprint=""), MODEL)


def test_a_drafter_without_a_target_has_nothing_to_be_compared_with():
    with pytest.raises(IncompatibleWorkerError, match="no verifier yet"):
        check_drafter(info(), None)


def test_another_protocol_is_refused_on_both_sides():
    other = info(version=PROTOCOL_VERSION + 1)
    with pytest.raises(IncompatibleWorkerError, match=f"version {PROTOCOL_VERSION + 1}"):
        check_verifier(other, tokenizer_fingerprint="", known=None)
    with pytest.raises(IncompatibleWorkerError, match=f"speaks {PROTOCOL_VERSION}"):
        check_drafter(other, MODEL)


def test_a_worker_that_would_send_packets_of_a_trial_is_refused_by_name():
    """Version 3 knows no trial plans, and no rows that open with positions computed."""
    old = info(version=3)
    with pytest.raises(IncompatibleWorkerError, match=r"'target': protocol version 3, this .* 4"):
        check_verifier(old, tokenizer_fingerprint="", known=None)
    with pytest.raises(IncompatibleWorkerError, match=r"'target': protocol version 3, this .* 4"):
        check_drafter(old, MODEL)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"vocab_size": 0}, "vocab_size=0"),
        ({"vocab_size": 2**32 - 1}, f"vocab_size={2**32 - 1}, want 1..{2**22}"),
        ({"max_model_len": 0}, "max_model_len=0, want 1"),
        ({"max_model_len": 2**32 - 1}, f"max_model_len={2**32 - 1}, want 1..{2**24}"),
        ({"block_size": 0}, "block_size=0, want 1"),
        ({"block_size": 2**32 - 1}, f"block_size={2**32 - 1}, want 1..{2**16}"),
        ({"num_spare_threads": 257}, "num_spare_threads=257, want 0..256"),
        ({"num_blocks": 2**32 - 1}, f"num_blocks={2**32 - 1}, want 0..{2**28}"),
        ({"eos_token_ids": tuple(range(257))}, "eos_token_ids=257 of them"),
        ({"eos_token_ids": (500,)}, "eos_token_ids=500, want 0..499"),
        ({"name": "x\x1b]0;pwn\x07"}, "name='x.x1b"),
        ({"name": "x" * 4097}, "it has 4097"),
        ({"dtype": "x" * 129}, "dtype='x"),
        ({"tokenizer_fingerprint": "a" * 10**6}, "tokenizer_fingerprint='aaa"),
        ({"weights_fingerprint": "\n"}, "weights_fingerprint="),
        ({"quantisation": "int4\x1b[2J"}, "quantisation="),
        ({"drafter_kind": "\0"}, "drafter_kind="),
        ({"kernels": "c/\x1b[2J"}, "kernels="),
        ({"kernels": "x" * 129}, "it has 129"),
        ({"device": "cpu\x1b[2J"}, "device="),
        ({"device": "x" * 129}, "device='x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_number_or_word_of_a_model_is_believed_out_of_its_range(change, want):
    with pytest.raises(IncompatibleWorkerError, match=want) as caught:
        check_verifier(info(**change), tokenizer_fingerprint="", known=None)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 5000
    with pytest.raises(IncompatibleWorkerError, match=want):
        check_drafter(info(**change), MODEL)


def test_a_verifier_has_blocks_a_drafter_manages_its_own():
    with pytest.raises(IncompatibleWorkerError, match="num_blocks=0, want 1"):
        check_verifier(info(num_blocks=0), tokenizer_fingerprint="", known=None)
    check_drafter(info(num_blocks=0), MODEL)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"instance_id": ""}, "instance_id=''"),
        ({"instance_id": "i" * 129}, "it has 129"),
        ({"version": "1\n2"}, "version="),
        ({"started_unix_ns": 2**64 - 1}, f"started_unix_ns={2**64 - 1}"),
        ({"protocol_version": 2**32 - 1}, f"protocol version {2**32 - 1}"),
    ],
    ids=str,
)
def test_nor_one_of_a_process(change, want):
    worker = info()
    worker = replace(worker, identity=replace(worker.identity, **change))
    with pytest.raises(IncompatibleWorkerError, match=want):
        check_verifier(worker, tokenizer_fingerprint="", known=None)
    with pytest.raises(IncompatibleWorkerError, match=want):
        check_drafter(worker, MODEL)


@pytest.mark.parametrize(
    "change",
    [{"acceptance": "maybe"}, {"acceptance": ""}, {"link_address": "h"}, {"link_address": "a b:1"}],
    ids=str,
)
def test_nor_what_a_verifier_says_of_itself(change):
    ((name, value),) = change.items()
    with pytest.raises(IncompatibleWorkerError, match=f"{name}='{value}'"):
        check_verifier(replace(info(), **change), tokenizer_fingerprint="", known=None)
