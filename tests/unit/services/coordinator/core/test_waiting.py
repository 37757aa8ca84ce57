from __future__ import annotations

import pytest

from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.waiting import WaitingQueue
from minedraft.types import RequestId, RowParams


def queue_of(*priorities: int) -> tuple[WaitingQueue, list[Request]]:
    queue, requests = WaitingQueue(), []
    for number, priority in enumerate(priorities):
        requests.append(Request(RequestId(f"r{number}"), (1,), RowParams(), 1, priority=priority))
        requests[-1].arrive(number)
        queue.add(requests[-1])
    return queue, requests


def order(queue: WaitingQueue) -> list[int]:
    return [queue.take().arrival for _ in range(len(queue))]


def test_equal_priorities_go_in_order_of_arrival():
    assert order(queue_of(*[7] * 9)[0]) == list(range(9))


def test_lower_numbers_go_first_and_of_equal_ones_the_oldest():
    assert order(queue_of(0, 5, -5, 5, -5)[0]) == [2, 4, 0, 1, 3]


def test_of_four_admissions_one_is_the_oldests():
    queue, _ = queue_of(100, 100, *[-100] * 8)
    assert order(queue) == [2, 3, 4, 0, 5, 6, 7, 1, 8, 9]


def test_one_that_was_admitted_for_its_age_comes_back_first():
    queue, requests = queue_of(100, *[-100] * 5)
    taken = [queue.take() for _ in range(4)]
    assert taken[-1] is requests[0]
    assert requests[0].rank < requests[1].rank
    queue.add(requests[0])
    assert queue.take() is requests[0]


def test_one_whose_turn_it_was_keeps_its_priority():
    queue, requests = queue_of(100)
    queue.take()
    assert requests[0].rank == (100, 0)


@pytest.mark.parametrize("priority", [-100, 100])
def test_one_that_leaves_is_in_nobodys_way(priority):
    queue, requests = queue_of(priority, 0, 0)
    queue.remove(requests[0])
    assert (len(queue), list(queue), order(queue)) == (2, requests[1:], [1, 2])
