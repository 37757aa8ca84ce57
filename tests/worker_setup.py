"""What tests of the drafter and of the verifier set up alike: ends of links, a model that loads."""

from __future__ import annotations

import asyncio
import threading

from minedraft.packets.spec import LinkSpec, Transport
from minedraft.plans import WorkerIdentity
from tests.fake_runner import FakeRunner

IDENTITY = WorkerIdentity("w", 1, 0, 0, "v")


def spec(epoch: int, **more) -> LinkSpec:
    return LinkSpec(
        epoch=epoch,
        name=f"l{epoch}",
        transport=Transport.LOCAL,
        max_rows=4,
        max_draft_tokens=8,
        verifier_address="v:1",
        timeout_s=1.0,
        **{"q_width": 0, **more},
    )


class LinkEnd:
    """One end of a link that is none; `lose` is what its thread says when the peer is gone."""

    description = "a link"

    def __init__(self, spec: LinkSpec, on_lost) -> None:
        self.spec = spec
        self.lose = lambda: on_lost(spec.epoch, "cable")
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class FormsLate:
    """Forms an end as `form` does, and keeps it until the test sets `go_on`."""

    def __init__(self, form) -> None:
        self._form = form
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, spec, **options):
        end = await self._form(spec, **options)
        self.begun.set()
        await self.go_on.wait()
        return end


def lost_at_once(form):
    """Form an end as `form` does; it is lost before anybody has it."""

    async def formed(spec, **options):
        end = await form(spec, **options)
        end.lose()
        await asyncio.sleep(0)
        return end

    return formed


class SlowLoad:
    """A model whose load nothing can interrupt."""

    def __init__(self) -> None:
        self._begun, self._go_on, self._ended = (threading.Event() for _ in range(3))

    def load(self, *_args, **_options) -> FakeRunner:
        self._begun.set()
        self._go_on.wait(5)
        self._ended.set()
        return FakeRunner()

    async def is_not_waited_for(self, run, config) -> None:
        """Stop a worker that loads this model: it ends before the load does."""
        stop = asyncio.Event()
        running = asyncio.ensure_future(run(config, stop=stop))
        await asyncio.to_thread(self._begun.wait, 5)
        stop.set()
        await running
        assert not self._ended.is_set()
        self._go_on.set()
        assert await asyncio.to_thread(self._ended.wait, 5)
