"""Replays what happened to the batches, line by line, and compares. The files are the readable
specification of the assignment rules: a comment with the rule, then one event a line.

`pytest tests/golden --update-golden` runs the events again and rewrites what came of them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minedraft.services.coordinator.core.assignment import RULES
from minedraft.types import RequestId

TRACES = sorted((Path(__file__).parent / "batch_manager").glob("*.jsonl"))


class Player:
    """Does to a `BatchManager` what a line says."""

    def make(self, num_batches, max_batch_size, assignment="balanced"):
        self.manager = RULES[assignment](num_batches, max_batch_size)

    def reshape(self, num_batches, max_batch_size, num_slots):
        """The shape changes; whoever must move does so later."""
        self.manager.reshape(num_batches, max_batch_size, num_slots=num_slots)

    def arrive(self, request, drafting):
        """A waiting request is admitted while the next step of `drafting` is planned."""
        batch = self.manager.choose(drafting)
        if batch is not None:
            self.manager.add(RequestId(request), batch)
        return batch

    def end(self, request):
        """Finish, abort or preemption: the same to the batches."""
        self.manager.remove(RequestId(request))

    def plan(self, batch):
        """A step of `batch` goes out."""
        self.manager.start(batch)

    def sync(self, batch):
        """`batch` has no step in flight any more."""
        moved = [list(move) for move in self.manager.rebalance(batch)]
        for request_id in self.manager.surplus(batch):
            self.manager.remove(request_id)
            moved.append([request_id, None])
        return moved

    def play(self, event):
        """Do one event; return what came of it and how things stand."""
        out = {"result": getattr(self, event["do"])(**event["args"])}
        manager = self.manager
        out["batches"] = [list(manager.members(b)) for b in manager.numbers]
        out["balance"] = manager.balance
        out["started"] = manager.started
        manager.check()
        return out


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_the_batches_do_what_the_trace_says(path, update_golden):
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# "), "the first line names the rule"
    comments = [line for line in lines if line.startswith("#")]
    events = [json.loads(line) for line in lines[len(comments) :]]
    player = Player()
    played = [{"do": e["do"], "args": e["args"], "out": player.play(e)} for e in events]
    if update_golden:
        path.write_text("\n".join([*comments, *map(json.dumps, played)]) + "\n")
        return
    for number, (event, now) in enumerate(zip(events, played, strict=True), len(comments) + 1):
        assert now == event, f"{path.name}:{number}"


def test_there_are_traces():
    assert len(TRACES) >= 8
