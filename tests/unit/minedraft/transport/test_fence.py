from __future__ import annotations

import pytest

from minedraft.errors import InvalidRequestError, PreconditionError, WorkerHeldError
from minedraft.transport.fence import Coordinator, Fence, coordinator_of

A, B = Coordinator("a", "here"), Coordinator("b", "there")


def test_who_calls_survives_the_wire_among_other_metadata():
    assert coordinator_of((("user-agent", b"x"), *A.metadata)) == A
    assert coordinator_of(Coordinator("a").metadata) == Coordinator("a")
    assert str(Coordinator("a")) == "coordinator a (without a name)"


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        (),
        (("minedraft-coordinator", ""),),
        (("minedraft-coordinator", b"a"),),
        (("minedraft-coordinator", "a" * 65),),
        (("minedraft-coordinator", "a\n"),),
        Coordinator("a", "x" * 129).metadata,
        Coordinator("a", "\x1b[2J").metadata,
    ],
)
def test_a_caller_that_does_not_say_who_it_is_is_refused(metadata):
    with pytest.raises(InvalidRequestError, match="metadata minedraft-coordinator"):
        coordinator_of(metadata)


def test_a_worker_is_given_to_one_and_to_the_next_when_that_one_has_left():
    fence = Fence("verifier")
    fence.take(A)
    fence.take(A)
    with pytest.raises(WorkerHeldError, match=r"this verifier belongs to coordinator a \(here\)"):
        fence.take(B)
    fence.leave()
    fence.take(B)
    assert fence.holder == B


def test_orders_need_the_session():
    fence = Fence("drafter")
    with pytest.raises(PreconditionError, match="no order from coordinator a"):
        fence.check(A)
    fence.take(A)
    fence.check(A)
    with pytest.raises(WorkerHeldError, match="this drafter belongs to coordinator a"):
        fence.check(B)
