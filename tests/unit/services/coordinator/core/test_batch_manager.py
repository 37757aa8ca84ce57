from __future__ import annotations

import pytest

from minedraft.errors import StateError
from minedraft.services.coordinator.core.batch_manager import BatchManager
from minedraft.types import RequestId


def filled(*sizes: int, max_batch_size: int = 8, started: bool = True) -> BatchManager:
    manager = BatchManager(len(sizes), max_batch_size)
    for batch, size in enumerate(sizes):
        for index in range(size):
            manager.add(RequestId(f"{'abc'[batch]}{index}"), batch)
    if started:
        manager.start(0)
    return manager


def place(manager: BatchManager, name: str, drafting: int = 0) -> int | None:
    batch = manager.choose(drafting)
    if batch is not None:
        manager.add(RequestId(name), batch)
    return batch


def test_the_first_fill_alternates_whatever_is_being_drafted():
    manager = BatchManager(2, 4)
    assert [place(manager, f"r{i}", drafting=1) for i in range(8)] == [0, 1] * 4


def test_an_end_during_the_first_fill_gives_its_place_to_the_next():
    manager = BatchManager(2, 4)
    for i in range(4):
        place(manager, f"r{i}")
    manager.remove(RequestId("r1"))  # batch 1 is one short: balance is -1
    assert manager.balance == -1
    assert [place(manager, f"s{i}") for i in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("drafting", [0, 1])
def test_later_requests_go_to_the_batch_being_drafted(drafting):
    manager = filled(2, 2)
    assert place(manager, "new", drafting) == drafting
    assert manager.balance == (1 if drafting else -1)


def test_a_full_batch_takes_nobody():
    manager = filled(2, 1, max_batch_size=2)
    assert manager.choose(0) is None
    assert manager.choose(1) == 1
    with pytest.raises(StateError, match="batch 0 is full"):
        manager.add(RequestId("new"), 0)


def test_a_request_is_in_one_batch_only():
    manager = filled(1, 1)
    with pytest.raises(StateError, match="request a0 is in a batch already"):
        manager.add(RequestId("a0"), 1)


def test_an_end_undoes_its_share_of_balance_and_an_unknown_id_is_fine():
    manager = filled(3, 2)
    assert manager.balance == -1
    manager.remove(RequestId("a1"))
    assert manager.balance == 0
    manager.remove(RequestId("b0"))
    manager.remove(RequestId("b0"))
    manager.remove(RequestId("nobody"))
    assert manager.balance == -1
    assert manager.members(0) == ("a0", "a2")
    assert manager.batch_of(RequestId("a1")) is None
    assert manager.batch_of(RequestId("b1")) == 1


def test_when_nobody_is_left_the_next_request_starts_a_new_first_fill():
    manager = filled(1, 1)
    manager.remove(RequestId("a0"))
    assert manager.started
    manager.remove(RequestId("b0"))
    assert not manager.started
    assert manager.balance == 0
    assert [place(manager, f"r{i}", drafting=1) for i in range(2)] == [0, 1]


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ((4, 0), (2, 2)),
        ((5, 0), (3, 2)),
        ((3, 1), (2, 2)),
        ((3, 2), (3, 2)),
        ((1, 0), (1, 0)),  # one alone: sequential speculation, not two half batches
        ((0, 4), (0, 4)),  # batch 1 is not at its sync point
        ((7, 1, 0), (3, 3, 2)),
        ((8,), (8,)),
    ],
)
def test_rebalancing_moves_as_few_as_it_takes(sizes, want):
    manager = filled(*sizes)
    moved = manager.rebalance(0)
    assert tuple(manager.size(batch) for batch in range(len(sizes))) == want
    assert len(moved) == sizes[0] - want[0]
    manager.check()


def test_the_newest_member_moves_first():
    manager = filled(4, 0)
    assert manager.rebalance(0) == ((RequestId("a3"), 1), (RequestId("a2"), 1))
    assert manager.members(0) == ("a0", "a1")


def test_one_batch_takes_everybody_up_to_its_size():
    manager = BatchManager(1, 2)
    assert [place(manager, f"r{i}") for i in range(3)] == [0, 0, None]
    assert manager.rebalance(0) == ()


def test_three_batches_fill_the_smallest_first():
    manager = BatchManager(3, 2)
    assert [place(manager, f"r{i}") for i in range(7)] == [0, 1, 2, 0, 1, 2, None]


def test_fewer_batches_move_members_at_their_own_sync_point_only():
    manager = filled(2, 2, 2, max_batch_size=2)
    manager.reshape(1, 6)
    assert [manager.size(batch) for batch in manager.numbers] == [2, 2, 2]
    assert manager.rebalance(2) == ((RequestId("c1"), 0), (RequestId("c0"), 0))
    assert [manager.size(batch) for batch in manager.numbers] == [4, 2, 0]
    manager.rebalance(1)
    manager.check()
    assert manager.size(0) == 6
    assert manager.num_moves == 4


def test_more_batches_take_half_of_the_members():
    manager = filled(5, max_batch_size=6)
    manager.reshape(2, 3)
    assert manager.choose(0) is None  # it is over its size until its sync point
    manager.check()
    assert [request_id for request_id, _ in manager.rebalance(0)] == ["a4", "a3"]
    assert [manager.size(batch) for batch in manager.numbers] == [3, 2]


def test_a_closing_batch_takes_nobody():
    manager = filled(1, 1)
    manager.reshape(1, 8)
    with pytest.raises(StateError, match="batch 1 is full"):
        manager.add(RequestId("new"), 1)


def test_closing_batches_are_forgotten_once_they_are_empty():
    manager = filled(1, 1, 1)
    manager.reshape(2, 8)
    assert len(manager.numbers) == 3
    manager.rebalance(2)
    manager.reshape(1, 8)
    assert len(manager.numbers) == 2
    assert (manager.members(2), manager.size(2)) == ((), 0)


def test_slots_bound_all_batches_together():
    manager = BatchManager(3, 3, num_slots=7)
    assert [place(manager, f"r{i}") for i in range(8)] == [0, 1, 2, 0, 1, 2, 0, None]


@pytest.mark.parametrize(
    ("sizes", "batch", "shape", "surplus"),
    [
        ((2, 2), 0, (2, 1), ["a1"]),
        ((2, 2), 1, (1, 2), ["b1", "b0"]),
        ((1, 2), 1, (1, 2), ["b0"]),  # the other one had a place
        ((2, 2), 0, (1, 4), []),
        ((2, 0), 0, (2, 1), []),
    ],
)
def test_who_has_no_place_after_a_reshape_is_the_surplus(sizes, batch, shape, surplus):
    manager = filled(*sizes)
    manager.reshape(*shape)
    manager.rebalance(batch)
    assert list(manager.surplus(batch)) == surplus


def test_fewer_slots_than_members_leave_a_surplus_though_every_batch_is_small_enough():
    manager = filled(2, 2, 2)
    manager.reshape(3, 2, num_slots=5)
    assert manager.surplus(0) == (), "others may be over their size"
    for batch in manager.numbers:
        manager.rebalance(batch)
    assert manager.surplus(0) == ("a1",)


@pytest.mark.parametrize("broken", ["twice", "nowhere", "size", "closing"])
def test_check_finds_a_broken_invariant(broken):
    manager = filled(2, 1, max_batch_size=2)
    manager.check()
    if broken == "twice":
        manager._members[1][RequestId("a0")] = None
    elif broken == "nowhere":
        del manager._members[1][RequestId("b0")]
    elif broken == "size":
        manager._left_over.clear()
        manager.max_batch_size = 1
    else:
        manager._left_over.clear()
        manager.num_batches = 1
    with pytest.raises(StateError):
        manager.check()
