"""The verifier's session, link, rows and device together: whichever drafts come, their step runs.

The model is a fake one whose next token shows at once if a step met another KV than it should.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import ProtocolError
from minedraft.link.mailbox import Mailbox
from minedraft.link.options import LinkOptions
from minedraft.model.executor import DeviceExecutor
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import OpenRow, StepBegun, VerifyPlan, VerifyRow
from minedraft.services.verifier.handler import Handler
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.transport import answer_codec, plan_codec
from minedraft.transport.fence import Coordinator
from minedraft.transport.status import _leaf
from minedraft.transport.worker_service import VerifierServicer
from minedraft.types import Acceptance, RowId, RowParams
from tests.fake_runner import FakeRunner, continuation
from tests.worker_setup import IDENTITY

BATCHES = 3
PROMPT = (1, 2, 3)
K = 2
EPOCH = 1
WAIT_NS = 600 * 10**9


class Link:
    """A receiver whose packets the test posts."""

    def __init__(self) -> None:
        self.mailbox = Mailbox(EPOCH)
        self.take = self.mailbox.take

    @property
    def counters(self):
        return self.mailbox.counters

    def close(self) -> None:
        self.mailbox.lose()


class Session:
    """A coordinator with one row per batch; a gRPC context, too."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue = asyncio.Queue()
        self.requests: asyncio.Queue = asyncio.Queue()
        self.begun = asyncio.Event()
        self.outputs: dict[int, list[int]] = {batch: [] for batch in range(BATCHES)}
        self.plans: dict[int, VerifyPlan] = {}
        self.num_steps = 0
        self.serving: asyncio.Task | None = None
        self.write = self.answers.put
        self.peer = lambda: "test"
        self.invocation_metadata = lambda: Coordinator("c", "here").metadata

    async def send_initial_metadata(self, _metadata) -> None:
        self.begun.set()

    async def stream(self):
        while (plan := await self.requests.get()) is not None:
            yield plan_codec.verify_plan_to_proto(plan)

    def plan(self, batch: int, *, closes=()) -> VerifyPlan:
        """Send a batch's next step; the first one feeds the prompt and has drafts already."""
        self.num_steps += 1
        row_id, output = RowId(batch + 1), self.outputs[batch]
        base = len(PROMPT) + len(output)
        is_first = batch not in self.plans
        row = VerifyRow(
            row_id,
            base,
            tuple(output),
            0 if is_first else base - 1,
            base if is_first else 1,
            K,
            tuple(range(batch * 16, batch * 16 + 16)) if is_first else (),
            0 if is_first else 16,
        )
        opens = (OpenRow(row_id, PROMPT, (), RowParams(temperature=0.0)),) if is_first else ()
        plan = VerifyPlan(self.num_steps, batch, EPOCH, (row,), opens, tuple(closes), WAIT_NS)
        self.plans[batch] = plan
        self.requests.put_nowait(plan)
        return plan

    def packet(self, batch: int, num_right: int) -> DraftPacket:
        """Drafts of a batch's step in flight; so many of them are right."""
        plan = self.plans[batch]
        (row,) = plan.rows
        right = continuation((*PROMPT, *self.outputs[batch]), K)
        drafts = [*right[:num_right], *(token + 1 for token in right[num_right:])]
        drafted = DraftedRow(row.row_id, row.base_len, tuple(token % 31 for token in drafts))
        return DraftPacket(EPOCH, plan.step_id, batch, (drafted,))

    async def told(self):
        return answer_codec.verify_answer_from_proto(await self.answers.get())

    async def steps(self, batch: int, num_right: int | None) -> None:
        """The next two messages are this batch's: its step began, and what came of it."""
        plan = self.plans[batch]
        assert await self.told() == StepBegun(plan.step_id, batch)
        result = await self.told()
        assert result.batch == batch
        self.check(result, num_right)

    def check(self, result, num_right: int | None) -> None:
        """A result is that of its batch's step with so many right drafts; None: without any."""
        assert result.step_id == self.plans[result.batch].step_id
        output = self.outputs[result.batch]
        want = continuation((*PROMPT, *output), (num_right or 0) + 1)
        assert list(result.rows[0].token_ids) == want
        assert result.num_stale_drafts == (num_right is None)
        output += want


@asynccontextmanager
async def verifier():
    async with DeviceExecutor() as executor:
        runner = FakeRunner()
        handler = Handler(
            engine=VerifyEngine(runner, Acceptance.COUPLED),
            executor=executor,
            identity=IDENTITY,
            model=runner.info,
            acceptance="coupled",
            rendezvous=None,
            link_options=LinkOptions(),
            link_address="",
        )
        session, link = Session(), Link()
        serving = asyncio.create_task(VerifierServicer(handler).Session(session.stream(), session))
        await session.begun.wait()
        handler._receivers[EPOCH] = link
        session.serving = serving
        yield session, link.mailbox
        session.requests.put_nowait(None)
        await serving


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, BATCHES - 1), st.integers(0, K), st.booleans()), max_size=9),
    st.permutations(range(BATCHES)),
)
def test_each_batch_goes_on_as_its_drafts_come_and_results_match_plans(drafts, order):
    """A batch whose drafts never come waits to the end, and holds nobody up."""

    async def run() -> None:
        async with asyncio.timeout(5), verifier() as (session, mailbox):
            for batch in order:
                session.plan(batch)
            early: dict[int, int] = {}
            for batch, num_right, is_early in drafts:
                if batch not in early:
                    mailbox.post(session.packet(batch, num_right))
                    early[batch] = num_right
                await session.steps(batch, early.pop(batch))
                session.plan(batch)
                if is_early:  # before the plan is read
                    mailbox.post(session.packet(batch, num_right))
                    early[batch] = num_right
                    await session.steps(batch, early.pop(batch))
                    session.plan(batch)
            mailbox.lose()
            told = [await session.told() for _ in range(2 * BATCHES)]
            begun = [note.step_id for note in told if isinstance(note, StepBegun)]
            results = [answer for answer in told if not isinstance(answer, StepBegun)]
            assert begun == [result.step_id for result in results]
            assert sorted(begun) == sorted(plan.step_id for plan in session.plans.values())
            for result in results:
                session.check(result, None)
            assert session.answers.empty()

    asyncio.run(run())


async def test_a_plan_said_twice_runs_once_and_each_is_answered():
    async with verifier() as (session, mailbox):
        session.plan(0)
        session.requests.put_nowait(session.plans[0])
        session.plan(1)
        session.requests.put_nowait(session.plans[1])
        mailbox.post(session.packet(1, K))
        first = [await session.told() for _ in range(4)]
        mailbox.post(session.packet(0, K))
        second = [await session.told() for _ in range(4)]
        for batch, told in ((1, first), (0, second)):
            results = [answer for answer in told if not isinstance(answer, StepBegun)]
            assert [list(result.rows[0].token_ids) for result in results] == [
                continuation(PROMPT, K + 1)
            ] * 2
            assert {answer.batch for answer in told} == {batch}


ROW_IDS = st.integers(1, 3).map(RowId)
ANY_PLAN = st.builds(
    VerifyPlan,
    step_id=st.integers(0, 5),
    batch=st.integers(0, BATCHES - 1),
    source=st.just(EPOCH),
    rows=st.lists(
        st.builds(
            VerifyRow,
            row_id=ROW_IDS,
            base_len=st.integers(3, 4),
            new_token_ids=st.sampled_from([(), (7,)]),
            num_computed=st.integers(0, 3),
            num_feed=st.integers(1, 3),
            num_draft_tokens=st.integers(1, K),
            new_block_ids=st.sampled_from([(), (0, 1), (2, 3)]),
            block_offset=st.sampled_from([0, 2]),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
    opens=st.lists(ROW_IDS, max_size=2).map(
        lambda ids: tuple(OpenRow(i, PROMPT, (), RowParams(temperature=0.0)) for i in ids)
    ),
    closes=st.lists(ROW_IDS, max_size=1).map(tuple),
    draft_timeout_ns=st.sampled_from([0, 10**6]),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(ANY_PLAN, min_size=1, max_size=8))
def test_plans_in_any_order_and_of_any_kind_end_in_answers_or_in_an_error(plans):
    """Each is begun once, those of a batch as they came; what cannot be run ends the session."""

    async def run() -> None:
        async with asyncio.timeout(5), verifier() as (session, _):
            for plan in plans:
                session.requests.put_nowait(plan)
            begun: dict[int, list[int]] = {batch: [] for batch in range(BATCHES)}
            while sum(map(len, begun.values())) < len(plans):
                told = asyncio.ensure_future(session.told())
                await asyncio.wait((told, session.serving), return_when=asyncio.FIRST_COMPLETED)
                if not told.done():
                    told.cancel()
                    break
                if isinstance(told.result(), StepBegun):
                    begun[told.result().batch].append(told.result().step_id)
            for batch, steps in begun.items():
                came = [plan.step_id for plan in plans if plan.batch == batch]
                assert steps == came[: len(steps)]
            session.requests.put_nowait(None)
            await asyncio.wait((session.serving,))
            error = session.serving.exception()
            if error is not None:
                assert isinstance(_leaf(error), ProtocolError)
                raise error

    try:
        asyncio.run(run())
    except* ProtocolError:
        pass
