"""The life of one draft source: what links, warm-ups, swaps and losses do to it. Pure.

Theory of operation.

A *draft source* is one model at one drafter over one token link. The three begin together and end
together. A drafter that is connected and has no link has no source yet; one that is swapped in
place has two, one per model.

**Number.** The coordinator numbers every link that it orders, from 1; a number is never used twice
in its life. The number is the source's id and, at both ends, the link's *epoch*. Plans, packets,
results and losses name it; the verifier keeps one receiver per epoch, a drafter keeps one (model,
rows, sender) per epoch. So nothing has to be cleaned up after a loss: what arrives late names a
number that is over, and whoever comes back comes as another source, which knows no rows.

**Begin.** LINKING while both ends form the link. A loss that is told meanwhile ends the source
before anybody has used it. When both ends stand it drafts at once (SERVE), or, in a swap, is
brought up to date first (WARM_UP).

**Draft.** The n sources that are SERVING share the batches: batch b goes to the (b mod n)-th. One
whose drafts did not come in time, and that says nothing, is SUSPECT: no step waits for it until it
is heard of, its batches go to the others or on without drafts, and a stopped process costs one
draft timeout, not one per step. One that says that it drafted, several steps in a row, while
nothing arrives at the verifier is BROKEN: every step would wait in vain for ever. Its link is
formed anew, after a pause that doubles, and it comes back as another source. It must have said so
before the verifier began: drafts that come later are late, not lost, and a source that catches up
with a long prompt keeps its link, and with it the KV that it has.

**Catch up.** While the shape is plain decoding no step needs drafts. Now and then a plan with k = 0
feeds a SERVING source what it lacks, one plan at a time, so that its drafts are good once they are
wanted again.

**Warm up.** Plans with k = 0 feed a WARMING source the committed tokens that it lacks, one plan at
a time, while the others draft. It is WARM when its answer leaves no row behind, or there is
nothing to feed; a later answer may find it behind again. If its link is lost the swap forms
another one, and the warm-up begins anew.

**Swap.** A WARM source takes the place of one that drafts (TAKE_OVER), which is then LEAVING: steps
in flight still get their drafts from it, and when none waits for it its link is dropped. In place
both sources are one drafter's, and while the swap lasts the swap alone orders its links;
blue/green they are two drafters'. Whatever fails before the cut-over leaves the old one in place.
If the old link is lost meanwhile, only that source is over, and the new one takes a free place.

**End.** Any state ends in GONE: the link was lost (whichever end says so), the session of the
drafter or of the verifier is over, drafters were given back because another coordinator holds the
verifier, or somebody dropped it. GONE has no way out.

Drafts never change the output (ADR 0003), so none of this can: it costs time only.

Who acts: `links` numbers and forms, `link_keeper` keeps every drafter with a source that drafts,
`warm_up` and `swap` replace one, `sources` gives batches to them. Only `advance` assigns a state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from minedraft.services.coordinator.core.transitions import after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.plans import DraftResult
    from minedraft.types import ModelInfo

MAX_MISSED_STEPS: Final = 3
"""Steps in a row whose drafts did not arrive though the source said that it had drafted."""


class State(Enum):
    """Where a source is in its life."""

    LINKING = "linking"  # both ends have the order to form its link
    WARMING = "warming"  # is fed what it lacks; drafts for nobody
    WARM = "warm"  # lacks nothing: may take over
    SERVING = "serving"  # drafts for its batches
    SUSPECT = "suspect"  # waited for in vain and silent: no step waits for it
    BROKEN = "broken"  # says that it drafts and nothing arrives: its link is formed anew
    LEAVING = "leaving"  # replaced; steps in flight still get their drafts from it
    GONE = "gone"


class Event(Enum):
    """What can happen to a source."""

    SERVE = "serve"  # its link stands, and it drafts
    WARM_UP = "warm_up"  # its link stands, and it shall take over once it has caught up
    CATCH_UP = "catch_up"  # no row is behind
    FALL_BEHIND = "fall_behind"  # some row is behind again
    TAKE_OVER = "take_over"  # the cut-over, for the one that drafts from now on
    REPLACE = "replace"  # the cut-over, for the one that drafted
    MISS = "miss"  # a step waited for its drafts in vain, and it has not said a word
    HEAR = "hear"  # it answers again
    BREAK = "break"  # several steps in a row did so, though it said that it had drafted
    END = "end"  # its link or a session is over, or it was dropped


class Place(Enum):
    """Where drafts come from."""

    LINK = "link"  # a drafter makes them and sends them over a token link
    VERIFIER = "verifier"  # the verifier makes them itself: no draft plan goes anywhere


_S, _E = State, Event
_END = {_E.END: _S.GONE}

TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = MappingProxyType(
    {
        _S.LINKING: {_E.SERVE: _S.SERVING, _E.WARM_UP: _S.WARMING, **_END},
        _S.WARMING: {_E.CATCH_UP: _S.WARM, **_END},
        _S.WARM: {_E.FALL_BEHIND: _S.WARMING, _E.TAKE_OVER: _S.SERVING, **_END},
        _S.SERVING: {
            _E.MISS: _S.SUSPECT,
            _E.BREAK: _S.BROKEN,
            _E.REPLACE: _S.LEAVING,
            **_END,
        },
        # Of steps planned before it was suspected some may still miss its drafts.
        _S.SUSPECT: {
            _E.HEAR: _S.SERVING,
            _E.BREAK: _S.BROKEN,
            _E.REPLACE: _S.LEAVING,
            **_END,
        },
        _S.BROKEN: _END,
        _S.LEAVING: _END,
        _S.GONE: {},
    }
)

_LINKED: Final = frozenset(State) - {State.LINKING, State.GONE}
_WARMING: Final = frozenset({State.WARMING, State.WARM})
_IN_PLACE: Final = frozenset({State.SERVING, State.SUSPECT})


@dataclass(slots=True, eq=False)
class DraftSource:
    """See the module docstring."""

    source_id: int
    """Epoch of its link; > 0."""
    model: ModelInfo
    place: Place = Place.LINK
    description: str = ""
    """What carries its drafts, for people; "" until its link stands."""
    _state: State = field(default=State.LINKING, init=False)
    _owed_step: int = field(default=0, init=False)
    """Step of the plan in flight that only feeds it, or of the one that waited in vain; 0: none."""
    _is_behind: bool = field(default=False, init=False)
    """Its last warm-up plan did not suffice: some rows need more of the same."""
    _num_missed: int = field(default=0, init=False)
    """Steps in a row without its drafts, though it said that it had drafted."""
    _has_drafted: bool = field(default=False, init=False)

    # -- looking ----------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self._state

    @property
    def kind(self) -> str:
        """What makes the drafts: `model`, or a kind for tests."""
        return self.model.drafter_kind

    @property
    def is_linked(self) -> bool:
        """Whether its link stands."""
        return self._state in _LINKED

    @property
    def is_warming(self) -> bool:
        """Whether it is on its way to take over; it may be warm."""
        return self._state in _WARMING

    @property
    def is_warm(self) -> bool:
        """Whether it may take over now."""
        return self._state is State.WARM

    @property
    def is_in_place(self) -> bool:
        """Whether it is one of those that batches are given to, suspect or not."""
        return self._state in _IN_PLACE

    @property
    def is_able(self) -> bool:
        """Whether steps may wait for its drafts."""
        return self._state is State.SERVING

    @property
    def is_broken(self) -> bool:
        """Whether its link has to be formed anew."""
        return self._state is State.BROKEN

    @property
    def is_gone(self) -> bool:
        """Whether its life is over."""
        return self._state is State.GONE

    @property
    def has_drafted(self) -> bool:
        """Whether drafts of it have arrived at the verifier since its link was formed."""
        return self._has_drafted

    @property
    def is_behind(self) -> bool:
        """Whether a warm-up plan must repeat rows that it was told of already."""
        return self._is_behind

    @property
    def owed_step(self) -> int:
        """The step that it owes an answer to; 0: none. Another number each time it gets on."""
        return self._owed_step

    @property
    def trouble(self) -> str:
        """Why no step waits for its drafts, for people; "": they may, or it does not draft."""
        if self._state is State.SUSPECT:
            return f"drafts of step {self._owed_step} did not come in time; no answer since"
        if self._state is State.BROKEN:
            return (
                f"drafts of {self._num_missed} steps in a row did not reach the verifier, "
                "though the drafter said that it had sent them"
            )
        return ""

    # -- what happens -----------------------------------------------------------------------

    def advance(self, event: Event) -> None:
        """Apply `event`.

        Raises:
            StateError: `event` is not allowed in the current state.
        """
        self._state = after(TRANSITIONS, self._state, event, noun="source", name=self.source_id)

    def serve(self) -> None:
        """Its link stands: it drafts from now on."""
        self.advance(Event.SERVE)

    def warm_up(self) -> None:
        """Its link stands: it shall take over once it has caught up."""
        self.advance(Event.WARM_UP)

    def feed(self, step_id: int) -> None:
        """A plan went out that only brings it up to date."""
        self._owed_step = step_id

    def caught_up(self) -> None:
        """There was nothing to feed."""
        self._note_behind(is_behind=False)

    def take_over(self) -> None:
        """It drafts from now on, in the place of another one or of nobody."""
        self.advance(Event.TAKE_OVER)
        self._owed_step = 0

    def replaced(self) -> None:
        """Another one drafts in its place from now on."""
        self.advance(Event.REPLACE)
        self._owed_step = 0

    def answered(self, result: DraftResult) -> bool:
        """Take its answer to a plan.

        Returns:
            False: it was that of a step.
        """
        if self._state is State.SUSPECT:
            self.advance(Event.HEAR)
            self._owed_step = 0
        if result.step_id != self._owed_step:
            return False
        self._owed_step = 0
        if self.is_warming:
            self._note_behind(is_behind=result.num_behind > 0)
        return True

    def verified(
        self,
        step_id: int,
        *,
        has_answered: bool,
        began_early: bool,
        num_rows: int,
        num_missing: int,
    ) -> None:
        """A step that was to have its drafts is verified.

        Args:
            step_id: Which.
            has_answered: The source has said that it is done with the step.
            began_early: The verifier began the step before the source had said so.
            num_rows: Rows for which drafts were planned; > 0.
            num_missing: Of them, those without usable drafts.
        """
        if self.place is Place.VERIFIER:
            return  # nothing travels, so nothing is late
        if num_missing < num_rows:
            self._num_missed, self._has_drafted = 0, True
        elif has_answered and not began_early:
            self._num_missed += 1
        if num_missing and not has_answered and self._state is State.SERVING:
            self.advance(Event.MISS)
            self._owed_step = step_id
        if self._num_missed >= MAX_MISSED_STEPS and self.is_in_place:
            self.advance(Event.BREAK)
            self._owed_step = 0

    def end(self) -> None:
        """It is over, for whatever reason. Once more is fine."""
        if self._state is not State.GONE:
            self.advance(Event.END)
            self._owed_step = 0

    def _note_behind(self, *, is_behind: bool) -> None:
        self._is_behind = is_behind
        if is_behind == self.is_warm:
            self.advance(Event.FALL_BEHIND if is_behind else Event.CATCH_UP)
