"""Drafters behind one DNS name come and go: the coordinator follows."""

from __future__ import annotations

import asyncio

from minedraft.services.coordinator.workers import membership
from minedraft.services.coordinator.workers.discovery import DrafterName


async def test_drafters_of_a_name_join_as_they_appear_and_leave_when_gone(monkeypatch):
    """Two addresses, then one, then none, then the resolver fails: nobody is dropped for that."""
    joined, left = [], []

    class Members(membership.Membership):
        def __init__(self):
            self.drafters = []
            self._reconnect_s = 0.01

        def join(self, member):
            joined.append((member.address, member.server_name))
            self.drafters.append(member)

        async def leave(self, member):
            left.append(member.address)
            self.drafters.remove(member)

    script = [frozenset({"a:1", "b:1"}), None, frozenset({"b:1"}), frozenset()]
    done = asyncio.Event()

    async def resolve(_self):
        if not script:
            done.set()
            await asyncio.Event().wait()
        return script.pop(0)

    monkeypatch.setattr(DrafterName, "resolve", resolve)
    monkeypatch.setattr(membership, "_RESOLVE_S", 0.0)
    task = asyncio.create_task(Members()._follow(DrafterName("drafter", 1)))
    await done.wait()
    task.cancel()
    assert sorted(joined) == [("a:1", "drafter"), ("b:1", "drafter")]
    assert left == ["a:1", "b:1"]
