from __future__ import annotations

from minedraft.plans import WorkerIdentity, WorkerInfo
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.workers.members import Member
from minedraft.types import ModelInfo

IDENTITY = WorkerIdentity("w", 1, 2, 3, "v")
MODEL = ModelInfo("m", 5, 6, "f", "float32")


def test_a_member_nobody_has_heard_of_has_a_status_too():
    status = Member("drafter", "host:1").status()
    assert (status.role, status.address, status.connected) == ("drafter", "host:1", False)
    assert status.identity.instance_id == status.model.name == ""
    assert status.link_epoch == 0


def test_the_status_tells_what_is_known():
    member = Member(
        "drafter",
        "host:1",
        info=WorkerInfo(IDENTITY, MODEL, ()),
        connection=object(),
        last_error="was lost",
    )
    serving, warming = DraftSource(4, MODEL, description="grpc"), DraftSource(5, MODEL)
    for source in (serving, warming):
        member.begin(source)
    serving.serve()
    warming.warm_up()
    status = member.status()
    assert (status.connected, status.identity, status.model) == (True, IDENTITY, MODEL)
    assert (status.link_epoch, status.link_description) == (4, "grpc")
    assert status.last_error == "was lost"


def test_members_are_told_apart_even_if_they_look_alike():
    one, other = Member("drafter", "host:1"), Member("drafter", "host:1")
    assert one != other
    assert {one: 1, other: 2}[other] == 2
