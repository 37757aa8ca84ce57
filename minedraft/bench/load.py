"""A closed loop of requests: when one finishes, the next one starts. Knows clients, not modes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from minedraft.api import SpeculationStats
    from minedraft.client import Client
    from minedraft.types import DebugOptions


@dataclass(frozen=True, slots=True)
class Job:
    """One greedy request of fixed length."""

    prompt: str
    max_tokens: int
    use_chat: bool = False
    """Send the prompt as a chat message instead of raw text."""
    debug: DebugOptions | None = None
    """What a test drafter should propose; needs a server that takes debug requests."""


@dataclass(frozen=True, slots=True)
class Record:
    """The result of one job, with times by the client's clock."""

    token_ids: tuple[int, ...]
    text: str
    num_prompt_tokens: int
    ttft_s: float
    """Time from sending to the first tokens."""
    e2e_s: float
    """Time from sending to the end."""
    speculation: SpeculationStats
    worst_gap_s: float = 0.0
    """Longest time between two arrivals of tokens; 0: all came at once."""
    sent_s: float = 0.0
    """When it was sent, since the load began."""

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first tokens; 0 for a single token."""
        rest = len(self.token_ids) - 1
        return (self.e2e_s - self.ttft_s) / rest if rest > 0 else 0.0


async def run_load(
    client: Client,
    jobs: Sequence[Job],
    *,
    num_resident: int,
    on_tokens: Callable[[int], None] = lambda _num: None,
    on_text: Callable[[int, str], None] = lambda _job, _text: None,
) -> list[Record]:
    """Run all jobs, with `num_resident` of them live at any time.

    Args:
        client: Where to send them.
        jobs: Started in this order.
        num_resident: Live requests; >= 1.
        on_tokens: Called with the number of new output tokens, at every delta.
        on_text: Called with the job's index and its new text, at every delta.

    Returns:
        One record a job, in the order of the jobs.

    Raises:
        MineDraftError: the first request that failed; the others are aborted.
    """
    records: dict[int, Record] = {}
    queue = iter(enumerate(jobs))
    begin = time.perf_counter()

    async def worker(queue: Iterator[tuple[int, Job]]) -> None:
        for index, job in queue:
            records[index] = await _run_job(client, job, begin, on_tokens, partial(on_text, index))

    try:
        async with asyncio.TaskGroup() as group:
            for i in range(min(num_resident, len(jobs))):
                group.create_task(worker(queue), name=f"load-{i}")
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [records[index] for index in range(len(jobs))]


async def _run_job(
    client: Client,
    job: Job,
    begin: float,
    on_tokens: Callable[[int], None],
    on_text: Callable[[str], None],
) -> Record:
    prompt = None if job.use_chat else job.prompt
    messages = [{"role": "user", "content": job.prompt}] if job.use_chat else None
    stream = client.stream(
        prompt,
        messages=messages,
        temperature=0.0,
        max_tokens=job.max_tokens,
        ignore_eos=True,
        debug=job.debug,
    )
    start = time.perf_counter()
    first = last = None
    worst_gap_s = 0.0
    async for delta in stream:
        if delta.token_ids:
            now = time.perf_counter()
            first = now if first is None else first
            worst_gap_s = max(worst_gap_s, now - (now if last is None else last))
            last = now
        on_tokens(len(delta.token_ids))
        on_text(delta.text)
    end = time.perf_counter()
    completion = stream.completion
    return Record(
        token_ids=completion.token_ids,
        text=completion.text,
        num_prompt_tokens=completion.num_prompt_tokens,
        ttft_s=(end if first is None else first) - start,
        e2e_s=end - start,
        speculation=completion.speculation,
        worst_gap_s=worst_gap_s,
        sent_s=start - begin,
    )
