from __future__ import annotations

import pytest

from tests.fake_coordinator import FakeCoordinator


def test_a_swap_names_what_drafts_now_and_how_long_it_took(minedraft, fake: FakeCoordinator):
    result = minedraft("drafter", "swap", "--model", "/models/other")
    assert result.exit_code == 0
    assert "/models/other over link epoch 2: 1.50 s in all, 0.25 s of it warm-up" in result.stdout
    assert fake.swaps[-1].model == "/models/other"


def test_a_running_drafter_can_take_over(minedraft, fake: FakeCoordinator):
    result = minedraft("drafter", "swap", "--to", "127.0.0.1:7", "--replace", "127.0.0.1:8")
    assert result.exit_code == 0
    assert (fake.swaps[-1].address, fake.swaps[-1].replace) == ("127.0.0.1:7", "127.0.0.1:8")


def test_both_or_neither_source_is_one_line_and_exit_code_1(minedraft):
    for arguments in ((), ("--model", "a", "--to", "b:1")):
        result = minedraft("drafter", "swap", *arguments)
        assert result.exit_code == 1
        assert "exactly one of --model and --to" in result.stderr


@pytest.mark.parametrize("option", ["--to", "--replace"])
def test_what_is_no_address_is_named_before_it_is_sent(minedraft, fake: FakeCoordinator, option):
    others = ["--model", "m"] if option == "--replace" else []
    result = minedraft("drafter", "swap", *others, option, "50051")
    assert result.exit_code == 1
    assert f"{option.strip('-')}='50051': want host:port" in result.stderr
    assert fake.swaps == []


def test_the_group_still_runs_a_drafter_and_says_what_it_lacks(minedraft):
    result = minedraft("drafter")
    assert result.exit_code == 1
    assert "model=''" in result.stderr
