"""Plays short scenarios on the simulator, line by line, and compares. The files are the readable
specification of the ring: a comment with the rule, what happens, a line, and what comes of it.

    setup batches=2 size=2 k=2 verify=10 draft=6    what there is; durations in ms, hops take none
    0 submit a prompt=4 output=6                     at 0 ms request a arrives
    25 abort a                                       at 25 ms its caller leaves

`pytest tests/golden --update-golden` plays them again and rewrites what came of them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest

from minedraft.sim.events import BEGIN_NS
from minedraft.sim.load import Arrival, Load
from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.sim.step_costs import FlatCosts, LinearCosts
from minedraft.types import Mode, RequestId

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
RULE = "-" * 100
MS = 1_000_000


class Player:
    """Plays a scenario and writes what comes of it."""

    def __init__(self, options):
        self.lines = []
        self.commits = ("", [])
        """Time and heading of the step that is being committed, and its rows."""
        mode = Mode(int(options.pop("batches")), int(options.pop("size")), int(options.pop("k")))
        verify, draft = (float(options.pop(leg)) * MS for leg in ("verify", "draft"))
        per_token = float(options.pop("per_token", 0)) * MS
        costs = FlatCosts(verify, draft)
        if per_token:
            costs = LinearCosts(verify, per_token, draft / max(mode.num_draft_tokens, 1), 0, 1)
        chances = tuple(float(each) for each in options.pop("acceptance", "1").split(","))
        names = {field.name for field in fields(Setup)}
        rest = {name: type_of(value) for name, value in options.items()}
        assert set(rest) <= names, sorted(set(rest) - names)
        setup = Setup(
            mode=mode, costs=costs, acceptance=AcceptanceModel(chances), hop_ns=0, link_ns=0
        )
        self.sim = Simulation(
            replace(setup, **rest), Load(()), on_plans=self.planned, on_commit=self.committed
        )

    # -- what happens -----------------------------------------------------------------------

    def submit(self, name, prompt, output, n=1, **options):
        facts = f"{name} arrives: {prompt} prompt tokens, {output} to write"
        self.write(facts + (f", {n} samples" if int(n) > 1 else ""))
        more = {key: int(value) for key, value in options.items()}
        self.sim.submit(Arrival(int(prompt), int(output), num_samples=int(n), **more), name)

    def abort(self, name):
        self.write(f"{name} leaves")
        self.sim.abort(RequestId(name))

    def lose_drafter(self, source):
        self.write(f"drafter {source} is lost")
        self.sim.lose_drafter(next(s for s in self.sim.core.sources if s.source_id == int(source)))

    def add_drafter(self):
        self.write("a drafter is linked")
        self.sim.add_drafter()

    def mode(self, **values):
        self.write("mode: " + ", ".join(f"{name} {value}" for name, value in values.items()))
        fields = {"batches": "num_batches", "size": "max_batch_size", "k": "num_draft_tokens"}
        changed = {fields[name]: int(value) for name, value in values.items()}
        self.sim.core.set_mode(replace(self.sim.core.mode, **changed))
        self.sim.schedule()

    # -- what comes of it -------------------------------------------------------------------

    def planned(self, _draft, verify):
        if not verify.rows:
            return
        owners = {request.row_id: name for name, request in self.sim.core.requests.items()}
        rows = []
        for row in verify.rows:
            what = f"drafts {row.num_draft_tokens}" if row.num_draft_tokens else "decodes"
            if row.num_feed > 1 or row.base_len - row.num_computed > 1:
                what = f"feeds {row.num_feed} of {row.base_len - row.num_computed}"
            rows.append(f"{owners[row.row_id]} {what}")
        self.write(f"step {verify.step_id:2} batch {verify.batch} planned: {', '.join(rows)}")

    def committed(self, result, outcome):
        heading = f"{self.now()} step {result.step_id:2} batch {result.batch} done:    "
        row = f"{outcome.request.request_id} +{outcome.num_committed_tokens}"
        if outcome.row.num_draft_tokens:
            row += f" ({outcome.row.num_accepted_tokens} of {outcome.row.num_draft_tokens})"
        row += f" and ends ({outcome.reason})" if outcome.reason else ""
        if self.commits[0] != heading:
            self.flush()
        self.commits = (heading, [*self.commits[1], row])

    def write(self, text):
        self.flush()
        self.lines.append(f"{self.now()} {text}")

    def now(self):
        return f"{(self.sim.events.now_ns - BEGIN_NS) / MS:7.1f}"

    def flush(self):
        heading, rows = self.commits
        self.commits = ("", [])
        if rows:
            self.lines.append(heading + ", ".join(rows))

    def check(self):
        self.sim.core.check()

    def play(self, events):
        for time, do, *words in events:
            named = dict(word.split("=") for word in words if "=" in word)
            plain = [word for word in words if "=" not in word]
            self.sim.events.at(
                BEGIN_NS + round(float(time) * MS), partial(getattr(self, do), *plain, **named)
            )
        self.sim.run(after_each=self.check, max_steps=500)
        self.flush()
        assert self.sim.core.is_idle
        return self.lines


def type_of(text):
    return int(text) if text.lstrip("-").isdigit() else text


def parts(path):
    """Comments, events as words, and what came of them."""
    told, _, came = path.read_text().partition(RULE + "\n")
    lines = told.splitlines()
    events = [line.split("#")[0].split() for line in lines if line and not line.startswith("#")]
    return lines, [words for words in events if words], came.splitlines()


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_ring_does_what_the_scenario_says(path, update_golden):
    told, events, came = parts(path)
    assert told[0].startswith("# "), "the first line names the rule"
    (name, *options), *events = events
    assert name == "setup"
    played = Player(dict(option.split("=") for option in options)).play(events)
    if update_golden:
        path.write_text("\n".join([*told, RULE, *played]) + "\n")
        return
    for number, (line, now) in enumerate(zip(came, played, strict=True), len(told) + 2):
        assert now == line, f"{path.name}:{number}"


def test_there_are_scenarios():
    assert len(SCENARIOS) >= 6
