from __future__ import annotations

import pytest

from minedraft.errors import StateError
from minedraft.prefix import PrefixCache
from minedraft.services.coordinator.core.request import Event, Phase, Request
from minedraft.services.coordinator.core.request_table import RequestTable
from minedraft.services.coordinator.core.step import Step
from minedraft.types import Mode, RequestId, RowParams
from tests.core_model import CoreModel
from tests.worker_doubles import continuation

EPOCH = 1


def table_of(*, num_batches=2, max_batch_size=4, num_blocks=10) -> RequestTable:
    table = RequestTable(num_batches, max_batch_size)
    table.use(PrefixCache(num_blocks, 4))
    return table


def arrive(
    table: RequestTable, count: int, num_prompt: int = 4, priority: int = 0
) -> list[Request]:
    first = len(table.live)
    made = [
        Request(RequestId(f"r{i}"), (i,) * num_prompt, RowParams(), 8, arrival=i, priority=priority)
        for i in range(first, first + count)
    ]
    for request in made:
        table.enqueue(request)
    return made


def decode(request: Request) -> None:
    """The prompt is in."""
    request.commit((5,))
    request.verifier_len = request.num_tokens
    request.drafter_lens = {EPOCH: request.num_tokens}


def put_in_flight(
    table: RequestTable, batch: int, requests: list[Request], step_id: int = 1
) -> None:
    ks = dict.fromkeys((r.row_id for r in requests), 0)
    table.in_flight[batch] = Step(step_id, batch, {r.row_id: r for r in requests}, ks)


def test_admission_is_in_order_and_each_life_gets_a_row_id_of_its_own():
    table = table_of()
    requests = arrive(table, 3)
    table.admit(0)
    assert [r.row_id for r in requests] == [1, 2, 3]
    assert [table.batches.batch_of(r.request_id) for r in requests] == [0, 1, 0]
    assert all(r.phase is Phase.PREFILLING for r in requests)
    assert (table.num_running, len(table.waiting)) == (3, 0)


def test_admission_stops_at_the_first_that_does_not_fit():
    table = table_of(num_blocks=10)
    arrive(table, 1, num_prompt=3)
    big = arrive(table, 1, num_prompt=39)  # ten blocks, and one of slack for the one running
    small = arrive(table, 1, num_prompt=1)
    table.admit(0)
    assert list(table.waiting) == [*big, *small], "no overtaking: the big one would starve"


def test_each_running_request_keeps_a_block_of_slack():
    table = table_of(num_batches=1, num_blocks=5)
    requests = arrive(table, 4, num_prompt=3)
    table.admit(0)
    assert list(table.waiting) == requests[3:]  # two of slack beside the third, three promised
    for request in requests[:3]:
        assert table.allocate(request, 4)
    table.admit(0)
    assert list(table.waiting) == requests[3:]  # two free, 1 + 3 wanted


def test_an_admission_keeps_what_those_of_the_same_round_were_promised():
    table = table_of(num_batches=1, num_blocks=10)
    requests = arrive(table, 4, num_prompt=11)  # three blocks each, with the next token
    table.admit(0)
    assert list(table.waiting) == requests[2:], "nine and two of slack for the third: ten free"
    table.begin_plan()
    assert all(table.allocate(request, 12) for request in requests[:2])
    assert table.num_preemptions == 0


def test_an_admission_keeps_what_a_prompt_fed_in_chunks_still_needs():
    table = table_of(num_batches=1, num_blocks=12)
    (long,) = arrive(table, 1, num_prompt=31)  # eight blocks
    table.admit(0)
    table.begin_plan()
    assert table.allocate(long, 8)  # two of them
    late = arrive(table, 1, num_prompt=15)  # four
    table.admit(0)
    assert list(table.waiting) == late, "ten free: six are promised, one is slack"
    table.begin_plan()
    assert table.allocate(long, 31)
    assert table.num_preemptions == 0


def test_one_that_is_admitted_again_is_promised_its_blocks_once():
    table, requests = crowded()
    assert table.allocate(requests[0], 5)  # r3 gives way
    table.use(PrefixCache(10, 4))
    for request in requests[:3]:
        request.block_ids = table.blocks.allocate(1)
    late = arrive(table, 1, num_prompt=3)
    table.admit(1)
    assert not table.waiting, "seven free: 2 + 3 for r3, then 1 + 2 + 4 for the new one"
    assert late[0].phase is Phase.PREFILLING


def test_one_that_fills_the_pool_is_admitted_when_it_is_alone():
    table = table_of(num_blocks=2)
    arrive(table, 1, num_prompt=8)
    table.admit(0)
    assert table.num_running == 1


def test_a_full_batch_admits_nobody():
    table = table_of(num_batches=1, max_batch_size=2)
    arrive(table, 3)
    table.admit(0)
    assert (table.num_running, len(table.waiting)) == (2, 1)


def test_members_are_in_order_of_arrival_not_of_joining():
    table = table_of(num_batches=1)
    requests = arrive(table, 3)
    table.admit(0)
    table.batches.remove(requests[0].request_id)
    table.batches.add(requests[0].request_id, 0)
    assert table.members(0) == requests


def test_only_what_is_missing_is_allocated():
    table = table_of()
    (request,) = arrive(table, 1)
    table.admit(0)
    assert table.allocate(request, 4)
    assert len(request.block_ids) == 1
    assert table.allocate(request, 9)
    assert len(request.block_ids) == 3
    assert table.allocate(request, 2)
    assert len(request.block_ids) == 3


def crowded(num_blocks: int = 4) -> tuple[RequestTable, list[Request]]:
    """Four requests in two batches; each has a block, none is free."""
    table = table_of(num_blocks=20)
    requests = arrive(table, 4, num_prompt=3)
    table.admit(0)
    table.use(PrefixCache(num_blocks, 4))  # admission would leave room for growth
    table.begin_plan()
    for request in requests:
        assert table.allocate(request, 4)
        decode(request)
    table.begin_plan()
    return table, requests


def test_the_newest_idle_request_gives_way():
    table, requests = crowded()
    assert table.allocate(requests[0], 5)
    assert requests[3].phase is Phase.WAITING
    assert list(table.waiting) == [requests[3]]
    assert len(requests[0].block_ids) == 2
    assert table.num_preemptions == 1
    assert table.take_verifier_closes() == table.take_drafter_closes(EPOCH) == (4,)
    table.check()


def test_one_that_gave_way_keeps_its_tokens_and_forgets_its_life():
    table, requests = crowded()
    assert table.allocate(requests[0], 5)
    victim = requests[3]
    assert victim.output_token_ids == [5]
    assert (victim.row_id, victim.block_ids, victim.num_computed) == (0, [], 0)
    for other in requests[:3]:
        table.end(other)
    table.admit(0)
    assert victim.row_id == 5


def test_one_that_gives_way_again_and_again_is_counted_once_among_those_that_prefill():
    table = table_of(num_blocks=6)
    older, newer = arrive(table, 2)
    table.admit(0)
    decode(older)
    for _ in range(5):
        decode(newer)
        assert table.allocate(newer, newer.num_computed)
        table.begin_plan()
        assert table.allocate(older, 24)
        assert newer.phase is Phase.WAITING
        table.blocks.free(older.block_ids)
        older.block_ids = []
        table.admit(1)
    assert table._prefilling == [newer]


def test_as_many_give_way_as_it_takes_and_they_queue_in_order_of_arrival():
    table, requests = crowded()
    assert table.allocate(requests[0], 12)
    assert list(table.waiting) == requests[2:]
    assert table.num_preemptions == 2


def test_the_lowest_priority_gives_way_of_equal_ones_the_newest():
    table = table_of(num_blocks=10)
    urgent, low, plain = (arrive(table, 1, priority=priority)[0] for priority in (-5, 9, 0))
    for batch in (0, 1):
        table.admit(batch)
    for request, num_positions in ((urgent, 8), (low, 16), (plain, 16)):
        decode(request)
        assert table.allocate(request, num_positions)
    table.begin_plan()
    assert table.allocate(urgent, 12)
    assert list(table.waiting) == [low]
    table.begin_plan()
    assert not table.allocate(plain, 36), "it is the lowest now, and nothing in flight"
    assert list(table.waiting) == [low, plain]


def test_one_admitted_for_its_age_gives_way_to_no_priority():
    table = table_of(num_batches=1, num_blocks=24)
    (old,) = arrive(table, 1, priority=100)
    arrive(table, 4, priority=-100)
    table.admit(0)
    assert old.phase is Phase.PREFILLING, "the fourth of the first four"
    assert [r.arrival for r in table.members(0)] == [0, 1, 2, 3]


def test_those_preempted_at_different_times_queue_in_order_of_arrival():
    table, requests = crowded()
    put_in_flight(table, 1, [requests[3]])
    assert table.allocate(requests[0], 5)  # the newest is in flight: the one before it goes
    assert list(table.waiting) == [requests[2]]
    assert table.end_step(1, 1) is not None
    assert table.allocate(requests[0], 12)
    assert list(table.waiting) == [requests[2], requests[3]]


def test_one_in_flight_or_planned_already_never_gives_way():
    table, requests = crowded()
    put_in_flight(table, 1, [requests[3]])
    assert table.allocate(requests[2], 4)  # is now part of the plan
    assert table.allocate(requests[0], 5)
    assert [r.phase for r in requests] == [Phase.READY, Phase.WAITING, Phase.READY, Phase.READY]


def test_the_newest_sits_out_while_a_step_in_flight_may_free_blocks():
    table, requests = crowded()
    put_in_flight(table, 0, [requests[0]])
    assert not table.allocate(requests[3], 5)
    assert requests[3].phase is Phase.READY
    assert table.num_preemptions == 0


def test_the_newest_gives_way_itself_when_nothing_is_in_flight():
    table, requests = crowded()
    assert not table.allocate(requests[3], 5)
    assert requests[3].phase is Phase.WAITING
    assert [len(r.block_ids) for r in requests] == [1, 1, 1, 0]


@pytest.mark.parametrize("in_flight", [True, False])
def test_blocks_of_one_that_ends_are_free_and_its_row_closed_once_no_step_uses_them(in_flight):
    table, requests = crowded()
    if in_flight:
        put_in_flight(table, 0, [requests[0], requests[2]], step_id=7)
    table.end(requests[0])
    assert table.blocks.num_free == (0 if in_flight else 1)
    assert table.take_verifier_closes() == (() if in_flight else (1,))
    table.check()
    if in_flight:
        step = table.end_step(0, 7)
        assert step is not None
        assert list(step.requests.values()) == [requests[2]]
        assert table.blocks.num_free == 1
        assert table.take_verifier_closes() == (1,)
        table.check()


def test_ending_one_that_waits_frees_nothing_and_tells_nobody():
    table, requests = crowded()
    (late,) = arrive(table, 1)
    table.end(late)
    assert late.is_finished
    assert table.blocks.num_used == 4
    assert table.take_verifier_closes() == table.take_drafter_closes(EPOCH) == ()
    assert list(table.live.values()) == requests


def test_workers_are_told_once_and_only_of_rows_they_know():
    table, requests = crowded()
    requests[1].drafter_lens = {}
    for request in requests[:2]:
        table.end(request)
    assert table.take_drafter_closes(EPOCH) == (1,)
    assert table.take_verifier_closes() == (1, 2)
    assert table.take_drafter_closes(EPOCH) == table.take_verifier_closes() == ()


def test_a_step_lands_once_and_only_under_its_own_id():
    table, requests = crowded()
    put_in_flight(table, 0, requests[:1], step_id=7)
    assert table.end_step(0, 6) is None
    assert table.end_step(1, 7) is None
    assert table.end_step(0, 7) is not None
    assert table.end_step(0, 7) is None


def test_after_the_loss_of_the_verifier_all_wait_in_the_old_order():
    table, requests = crowded()
    assert table.allocate(requests[0], 5)  # r3 waits already
    late = arrive(table, 1)
    put_in_flight(table, 0, requests[:1])
    table.end(requests[2])
    table.start_over()
    assert list(table.waiting) == [requests[0], requests[1], requests[3], *late]
    assert not table.in_flight
    assert table.take_verifier_closes() == ()
    assert table.batches.size(0) == table.batches.size(1) == 0
    assert not table.batches.started
    table.check()


def test_a_new_drafter_knows_no_row():
    table, requests = crowded()
    table.end(requests[0])
    table.forget_source(EPOCH)
    assert [r.drafter_lens for r in requests[1:]] == [{}, {}, {}]
    assert table.take_drafter_closes(EPOCH) == ()
    assert table.take_verifier_closes() == (1,)


@pytest.mark.parametrize("broken", ["leak", "shared"])
def test_check_finds_blocks_without_or_with_two_owners(broken):
    table, requests = crowded()
    table.check()
    if broken == "leak":
        requests[0].block_ids.clear()
    else:
        requests[0].block_ids[:] = requests[1].block_ids
    with pytest.raises(StateError, match=r"are listed, .* are counted"):
        table.check()


# -- drafts ---------------------------------------------------------------------------------


def test_drafts_get_free_blocks_and_say_how_many_fit():
    table, requests = crowded(num_blocks=5)  # each has a block and no need of another
    assert table.allocate(requests[0], 4)
    assert table.allocate_drafts(requests[0], 9) == 4, "one block is free"
    assert len(requests[0].block_ids) == 2
    assert table.allocate_drafts(requests[0], 3) == 3, "it holds their positions already"
    assert table.num_preemptions == 0


def test_without_a_free_block_a_request_steps_without_drafts_and_preempts_nobody():
    table, requests = crowded()
    assert table.allocate(requests[0], 4)
    assert table.allocate_drafts(requests[0], 4) == 0
    assert [r.phase for r in requests] == [Phase.READY] * 4
    assert table.num_preemptions == 0


def test_drafts_leave_the_block_that_another_request_needs_for_its_next_token():
    table, requests = crowded(num_blocks=5)
    requests[3].advance(Event.VERIFY)
    requests[3].commit((5,))  # idle, and out of positions
    assert table.allocate(requests[0], 4)
    assert table.allocate_drafts(requests[0], 4) == 0
    assert table.allocate(requests[3], 8), "the free block is there when its batch is planned"
    assert table.num_preemptions == 0


def test_drafts_leave_the_block_that_the_next_token_of_a_step_in_flight_may_need():
    table, requests = crowded(num_blocks=5)
    put_in_flight(table, 1, [requests[1]])
    assert table.allocate(requests[0], 4)
    assert table.allocate_drafts(requests[0], 4) == 0, "r1 may come back with five tokens"
    table.end_step(1, 1)
    table.begin_plan()
    assert table.allocate(requests[0], 4)
    assert table.allocate_drafts(requests[0], 4) == 4


def serve(k: int, share: float) -> CoreModel:
    """Forty requests in two batches of eight, in a pool for a share of what sixteen need."""
    model = CoreModel(Mode(2, 8, k), num_blocks=int(16 * 8 * share), max_waiting=40)
    for index in range(40):
        prompt = (index, *range(7 + index % 9))  # no two begin alike
        model.submit(prompt, 16 + index % 5)  # seven to nine blocks
    steps = 0
    while model.live:
        model.rotate(lambda row_id, k, turn=steps: (row_id * 7 + turn) % (k + 1))
        model.check()
        steps += 1
    assert all(
        output == continuation((index, *range(7 + index % 9)), len(output))
        for index, output in ((int(name[1:]), found) for name, found in model.outputs.items())
    )
    return model


def test_in_a_pool_for_sixty_percent_of_the_load_no_preemption_is_for_drafts():
    with_drafts, without = serve(4, 0.6), serve(0, 0.6)  # `BlockRules` watches each allocation
    assert with_drafts.rules.num_short > 0, "the pool is tight"
    assert without.core.counters.num_preemptions > 0
    assert with_drafts.core.counters.num_preemptions <= without.core.counters.num_preemptions
