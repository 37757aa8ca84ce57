"""The core under any order of events, against workers that check every plan and a plain model.

Losing the verifier or the drafter, answers late or twice, aborts in every phase, a pool so small
that requests preempt each other: outputs are a function of the prompt alone, nobody starves, and
what is taken is given back. What is asserted is in tests/core_model.py.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from minedraft.errors import DuplicateRequestError
from minedraft.services.coordinator.core.request import Request
from minedraft.types import SHAPES, Mode, RequestId, RowParams
from tests.core_model import CoreModel
from tests.plan_checks import CONTEXT
from tests.worker_doubles import VOCAB

PROMPTS = st.one_of(
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20),
    st.integers(1, 20).map(range),  # they begin alike
    st.tuples(st.integers(1, 19), st.integers(0, 3)).map(lambda cut: [*range(cut[0]), cut[1]]),
)
REQUESTS = st.tuples(
    PROMPTS.map(tuple),
    st.integers(1, 20),
    st.sampled_from((None, None, None, 0, 2)),
    st.sampled_from((0, 0, -3, 5)),
)
INDEX = st.integers(0, 1000)


class CoreMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(
        num_batches=st.sampled_from((2, 1, 3)),
        max_batch_size=st.integers(1, 4),
        k=st.sampled_from((4, 0, 1, 7)),
        num_blocks=st.sampled_from((10, 7, 60)),
        drafter_context=st.sampled_from((CONTEXT, 20)),
        prefix_cache=st.sampled_from((True, True, False)),
        shape=st.sampled_from(SHAPES),
        requests=st.lists(REQUESTS, min_size=2, max_size=8),
    )
    def start(
        self,
        num_batches,
        max_batch_size,
        k,
        num_blocks,
        drafter_context,
        prefix_cache,
        shape,
        requests,
    ):
        mode = Mode(num_batches, max_batch_size, k, shape)
        self.model = CoreModel(
            mode,
            num_blocks=num_blocks,
            drafter_context=drafter_context,
            prefix_cache=prefix_cache,
        )
        self.submit(requests)

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=3))
    def submit(self, requests):
        for prompt, max_tokens, k, priority in requests:
            self.model.submit(prompt, max_tokens, k, priority)

    @rule(num_turns=st.integers(1, 10), seed=INDEX, drafts_in=st.booleans())
    def rotate(self, num_turns, seed, drafts_in):
        for turn in range(num_turns if self.model.verifier is not None else 0):
            self.model.rotate(
                lambda row_id, k, turn=turn: (seed + row_id * turn) % (k + 1), drafts_in=drafts_in
            )
            self.model.check()

    @rule()
    def plan(self):
        self.model.plan()

    @precondition(lambda self: self.model.verifier is not None)
    @rule(seed=INDEX, drafts_came=st.booleans())
    def work(self, seed, drafts_came):
        self.model.work(
            lambda row_id, k: (seed + row_id) % (k + 1), drafts_came=drafts_came, pick=seed
        )

    @precondition(lambda self: self.model.notes)
    @rule()
    def begin(self):
        self.model.begin()

    @precondition(lambda self: self.model.answers)
    @rule()
    def answer(self):
        self.model.answer()

    @precondition(lambda self: self.model.old_answers)
    @rule(index=INDEX)
    def answer_again(self, index):
        self.model.answer_again(index)

    @precondition(lambda self: self.model.draft_answers)
    @rule(index=INDEX, keep=st.booleans())
    def draft_answer(self, index, keep):
        self.model.draft_answer(index, keep=keep)

    @precondition(lambda self: self.model.serving)
    @rule(index=INDEX, num_plans=st.integers(1, 3))
    def fall_behind(self, index, num_plans):
        """A drafter needs more steps to catch up with the rows of its next plans."""
        serving = self.model.serving
        self.model.doubles[serving[index % len(serving)]].num_slow += num_plans

    @rule(index=INDEX)
    def abort(self, index):
        """Live, ended and never seen ones."""
        ids = [*self.model.live, *list(self.model.ended)[:1], "never seen"]
        self.model.abort(RequestId(ids[index % len(ids)]))

    @rule(index=INDEX)
    def abort_a_whole_batch(self, index):
        numbers = self.model.core.batch_numbers
        for request_id in self.model.core.batches.members(numbers[index % len(numbers)]):
            self.model.abort(request_id)

    @rule(k=st.sampled_from((0, 1, 4)), num_batches=st.integers(1, 4), size=st.integers(1, 4))
    def set_mode(self, k, num_batches, size):
        """Under load, at any moment: fewer batches, more, smaller ones."""
        self.model.core.set_mode(Mode(num_batches, size, k, self.model.core.mode.shape))

    @precondition(lambda self: self.model.core.mode.shape == "auto")
    @rule(num_batches=st.integers(1, 3), drafts=st.booleans())
    def reshape(self, num_batches, drafts):
        """Another shape within the mode, at any moment; plain decoding feeds the drafters."""
        self.model.reshape(num_batches, self.model.core.mode.num_draft_tokens * drafts)

    @precondition(lambda self: self.model.live)
    @rule(index=INDEX)
    def submit_a_live_id_again(self, index):
        request_id = list(self.model.live)[index % len(self.model.live)]
        with pytest.raises(DuplicateRequestError, match=request_id):
            self.model.core.submit(Request(RequestId(request_id), (1,), RowParams(), 1))

    @rule()
    def verifier_goes_or_comes(self):
        if self.model.verifier is None:
            self.model.bring_verifier_up()
        else:
            self.model.lose_verifier()

    @precondition(lambda self: self.model.verifier is not None)
    @rule(again=st.booleans())
    def verifier_fails(self, again):
        self.model.fail_verifier()
        if again:
            self.model.bring_verifier_up()
            self.model.plan()

    @precondition(lambda self: self.model.verifier is not None)
    @rule(is_new=st.booleans())
    def verifier_breaks_off(self, is_new):
        self.model.lose_verifier(may_have_died=True)
        self.model.bring_verifier_up(is_new=is_new)
        self.model.plan()

    @precondition(lambda self: self.model.verifier is not None)
    @rule(stays=st.booleans())
    def drafter_goes_or_comes(self, stays):
        if self.model.drafter is None or stays:
            self.model.bring_drafter_up()
        else:
            self.model.lose_drafter()

    @precondition(lambda self: self.model.verifier is not None and len(self.model.doubles) < 4)
    @rule()
    def one_more_drafter(self):
        self.model.add_drafter()

    @precondition(lambda self: self.model.doubles)
    @rule(index=INDEX)
    def one_drafter_goes(self, index):
        """One that serves, warms up or was replaced."""
        self.model.drop_drafter(list(self.model.doubles)[index % len(self.model.doubles)])

    @precondition(lambda self: self.model.verifier is not None and len(self.model.doubles) < 4)
    @rule(num_slow=st.integers(0, 2))
    def warm_up(self, num_slow):
        self.model.warm_up(num_slow)

    @precondition(lambda self: self.model.warming)
    @rule(index=INDEX, old=INDEX)
    def cut_over(self, index, old):
        """Whether it is warm or not; in the place of one that serves, or of nobody."""
        warming = list(self.model.warming)
        places = [*self.model.serving, 0]
        self.model.cut_over(places[old % len(places)], warming[index % len(warming)])

    @invariant()
    def core_equals_model(self):
        self.model.check()

    def teardown(self):
        if hasattr(self, "model"):
            self.model.run_dry()


TestCoreMachine = CoreMachine.TestCase
TestCoreMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCoreMachine = pytest.mark.timeout(60)(TestCoreMachine)


def some_prompt(rng: random.Random) -> tuple[int, ...]:
    """Half of them begin alike."""
    prompt = tuple(rng.randrange(VOCAB) for _ in range(rng.randint(1, 20)))
    return prompt if rng.random() < 0.5 else (*range(rng.randint(1, 16)), *prompt[:4])


def storm(seed: int) -> CoreModel:  # noqa: C901 a list of events
    """Two hundred requests and thousands of events that one seed picks."""
    rng = random.Random(seed)
    mode = Mode(
        rng.randint(1, 3), rng.randint(1, 6), rng.choice((0, 1, 3, 4, 7)), rng.choice(SHAPES)
    )
    model = CoreModel(
        mode,
        num_blocks=rng.choice((10, 12, 20, 60)),
        drafter_context=rng.choice((CONTEXT, 20)),
        max_waiting=300,
    )

    def submit():
        prompt = some_prompt(rng)
        k, priority = rng.choice((None, None, None, 0, 2)), rng.choice((0, 0, -3, 5))
        model.submit(prompt, rng.randint(1, 20), k, priority)

    def accept(_row_id, k):
        return rng.randint(0, k)

    def work():
        if model.verifier is not None:
            model.work(accept, drafts_came=rng.random() < 0.9, pick=rng.randrange(9))

    def abort():
        if model.live:
            model.abort(RequestId(rng.choice(list(model.live))))

    def abort_batch():
        for request_id in model.core.batches.members(rng.choice(model.core.batch_numbers)):
            model.abort(request_id)

    def verifier():
        if model.verifier is not None:
            die = partial(model.lose_verifier, may_have_died=True)
            rng.choice((model.lose_verifier, model.fail_verifier, die))()
        else:
            model.bring_verifier_up()

    def drafter():
        if model.verifier is None:
            return
        if model.drafter is not None and rng.random() < 0.5:
            model.lose_drafter()
        else:
            model.bring_drafter_up()

    def another_drafter():
        if model.verifier is not None and len(model.doubles) < 4:
            rng.choice((model.add_drafter, lambda: model.warm_up(rng.randint(0, 2))))()

    def one_drafter_goes():
        if model.doubles:
            model.drop_drafter(rng.choice(list(model.doubles)))

    def cut_over():
        if model.warming:
            model.cut_over(rng.choice([*model.serving, 0]), rng.choice(list(model.warming)))

    def set_mode():
        model.core.set_mode(
            Mode(rng.randint(1, 4), rng.randint(1, 6), rng.choice((0, 1, 4)), mode.shape)
        )
        if mode.shape == "auto":
            model.reshape(rng.randint(1, 4), rng.choice((0, mode.num_draft_tokens)))

    events = {
        submit: 20,
        model.plan: 60,
        work: 60,
        lambda: model.notes and model.begin(): 30,
        lambda: model.answers and model.answer(): 60,
        lambda: model.draft_answers and model.draft_answer(rng.randrange(9)): 30,
        lambda: model.old_answers and model.answer_again(rng.randrange(999)): 3,
        abort: 4,
        abort_batch: 0.3,
        verifier: 0.3,
        drafter: 1,
        another_drafter: 3,
        one_drafter_goes: 1.5,
        cut_over: 2,
        set_mode: 2,
    }
    while model.num_submitted < 200:
        rng.choices(list(events), events.values())[0]()
        if model.verifier is None and rng.random() < 0.3:
            model.bring_verifier_up()
        model.check()
    model.run_dry()
    assert model.core.counters.num_prefix_hits > 0
    return model


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.timeout(60)
def test_a_storm_changes_no_output_and_leaves_nothing_behind(seed):
    model = storm(seed)
    assert set(model.ended.values()) == {1}
    assert len(model.ended) == 200
