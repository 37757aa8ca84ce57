from __future__ import annotations

from minedraft.plans import WorkerUsage
from minedraft.transport.answer_codec import draft_answer_from_proto
from minedraft.transport.usage_codec import usage_to_drafter_answer


def test_what_a_drafter_holds_survives_the_wire():
    usage = WorkerUsage(2**32 - 1, 3, 2**40, 2**32 - 2, 2**41, 2**50, 2**49, 2**42)
    assert draft_answer_from_proto(usage_to_drafter_answer(usage)) == usage
