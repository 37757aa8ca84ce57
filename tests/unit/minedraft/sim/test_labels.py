from __future__ import annotations

import random

from minedraft.sim.labels import Label, Labels


def test_nothing_is_told_of_drafts_without_tokens():
    labels = Labels()
    assert labels.tell(9) == Label()
    labels.add(9, 3, 2)
    assert labels.tell(9) == Label()


def test_the_oldest_drafts_come_first_and_are_told_once():
    labels = Labels()
    labels.add(9, 4, 3)
    assert labels.tell(10) == Label(9, 1, 1)
    labels.add(10, 4, 2)
    assert labels.tell(13) == Label(9, 3, 4)
    assert labels.tell(13) == Label(10, 2, 3)
    assert labels.tell(99) == Label()


def test_drafts_made_again_take_the_place_of_the_first():
    labels = Labels()
    labels.add(9, 4, 3)
    labels.add(9, 2, 0)
    assert labels.tell(12) == Label(9, 0, 1)
    assert labels.tell(12) == Label()


def test_each_draft_is_told_of_once_and_rightly():
    chance, labels, base_len, told = random.Random(1), Labels(), 5, {}
    made = {}
    for _ in range(300):
        label = labels.tell(base_len)
        if label.judged_len:
            k, standing = made[label.judged_len]
            assert label.num_matched == min(standing, label.num_matched)
            assert label.num_resolved > told.get(label.judged_len, 0)
            told[label.judged_len] = label.num_resolved
        k, standing = 6, chance.randint(0, 6)
        made[base_len] = k, standing
        labels.add(base_len, k, standing)
        base_len += chance.randint(1, 3)
    for base, (k, standing) in list(made.items())[:-20]:
        assert told[base] == min(standing + 1, k)
