"""Costs are kept per device, so its name says what makes a difference, within a bound."""

from __future__ import annotations

import pytest
import torch

from minedraft.cpu import Cpu
from minedraft.model import device_words as module
from minedraft.model.device_words import device_words

CPU = torch.device("cpu")


@pytest.fixture
def cpu_is(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def named(name: str) -> None:
        monkeypatch.setattr(module, "this_cpu", lambda: Cpu(name=name))

    return named


def test_a_cpu_is_named_with_its_threads_and_ranks(cpu_is):
    cpu_is("AMD EPYC 9454 48-Core")
    assert device_words(CPU) == "cpu AMD EPYC 9454 48-Core x2"
    assert device_words(CPU, num_ranks=4) == "cpu AMD EPYC 9454 48-Core x2, 4 ranks"


def test_a_name_is_short_and_printable(cpu_is):
    cpu_is("x\x1b[2J" + "y" * 500)
    words = device_words(CPU, num_ranks=1024)
    assert len(words) <= 128
    assert words.isprintable()


def test_a_cpu_that_says_no_name_is_its_architecture(cpu_is, monkeypatch):
    cpu_is("")
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    assert device_words(CPU) == "cpu aarch64 x2"


def test_a_gpu_has_the_name_of_its_driver(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA H200")
    assert device_words(torch.device("cuda", 0), num_ranks=4) == "cuda NVIDIA H200, 4 ranks"
