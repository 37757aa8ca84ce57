from __future__ import annotations

import pytest

from minedraft.model.sampling_row import SamplingRow
from minedraft.services.drafter.config import DrafterKind
from minedraft.services.drafter.proposal import replacement, scripted
from minedraft.services.drafter.rows import Row
from minedraft.types import DebugOptions, RowParams

REFERENCE = (10, 11, 12)


def row(output=(), *, reference=REFERENCE, acceptance=None) -> Row:
    debug = DebugOptions(reference, acceptance)
    return Row(SamplingRow(RowParams(seed=5), (1, 2), output), debug)


def replaced(kind, row, drawn, prefix=(), *, coin=0.5) -> int | None:
    return replacement(kind, row, drawn, prefix, vocab_size=13, coin=lambda *_: coin)


@pytest.mark.parametrize("kind", [DrafterKind.MODEL, DrafterKind.ORACLE])
def test_a_model_proposes_what_it_drew(kind):
    assert replaced(kind, row(), 7) is None


def test_an_anti_oracle_proposes_another_token_of_the_vocabulary():
    assert replaced(DrafterKind.ANTI_ORACLE, row(), 7) == 8
    assert replaced(DrafterKind.ANTI_ORACLE, row(), 12) == 0


@pytest.mark.parametrize(("coin", "want"), [(0.0, 11), (0.69, 11), (0.7, 12), (0.99, 12)])
def test_synthetic_is_right_when_the_coin_falls_under_the_acceptance(coin, want):
    given = row((10,), acceptance=0.7)
    assert replaced(DrafterKind.SYNTHETIC, given, 3, coin=coin) == want


def test_a_wrong_synthetic_token_stays_in_the_vocabulary():
    given = row(reference=(12,), acceptance=0.0)
    assert replaced(DrafterKind.SYNTHETIC, given, 3) == 0


def test_synthetic_throws_its_coin_for_the_absolute_position():
    asked = []
    replacement(
        DrafterKind.SYNTHETIC,
        row((10,), acceptance=0.5),
        3,
        (11,),
        vocab_size=13,
        coin=lambda seed, position: asked.append((seed, position)) or 0.0,
    )
    assert asked == [(5, 4)]


@pytest.mark.parametrize("acceptance", [None, 0.5])
def test_past_the_reference_synthetic_is_a_model(acceptance):
    given = row((10, 11), acceptance=acceptance)
    assert replaced(DrafterKind.SYNTHETIC, given, 3, (12,)) is None
    assert replaced(DrafterKind.SYNTHETIC, row(acceptance=None), 3) is None


@pytest.mark.parametrize("kind", [DrafterKind.SYNTHETIC, DrafterKind.SCRIPTED])
def test_a_reference_token_beyond_the_vocabulary_replaces_nothing(kind):
    given = row(reference=(13, 12), acceptance=1.0)
    assert replaced(kind, given, 3) is None
    assert replaced(kind, given, 3, (3,), coin=0.0) == 12


def test_a_replacement_that_equals_the_drawn_token_is_one():
    given = row(reference=(7,), acceptance=1.0)
    assert replaced(DrafterKind.SYNTHETIC, given, 7, coin=0.0) == 7


def test_scripted_follows_the_reference():
    assert scripted(row(), 2) == [10, 11]
    assert scripted(row((10, 11)), 4) == [12]
    assert scripted(row((10, 11, 12)), 4) == []
    assert scripted(row(), 0) == []
    assert replaced(DrafterKind.SCRIPTED, row((10,)), 3, (11,)) == 12
    assert replaced(DrafterKind.SCRIPTED, row((10,)), 3, (11, 12)) is None
