"""A request that the verifier's process dies of, with real processes and a supervisor."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager

import pytest

from minedraft.client import NO_RETRIES, Client
from minedraft.errors import ProtocolError
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from tests.dying_verifier import CODE
from tests.integration.cluster import LOOPBACK, Service, until_up
from tests.integration.conftest import gather

DEADLY = 299
GOOD = [(5, 9, 17, 33), (5, 9), (8, 200, 3, 4, 5, 6, 7), (40,)]
OPTIONS = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


@asynccontextmanager
async def supervised_verifier(target_dir):
    """Its address and the exit codes of its former lives; it is started again when it ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    codes: list[int] = []
    options = [f"--listen={address}", "--num-blocks=64", "--block-size=8", "--grace-s=0.1"]
    command = ["-m", "tests.dying_verifier", str(DEADLY), f"--model={target_dir}", *options]

    async def supervise() -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                codes.append(await process.wait())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    task = asyncio.create_task(supervise())
    try:
        yield address, codes
    finally:
        task.cancel()
        await asyncio.wait((task,))


@pytest.mark.multiproc
@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_a_request_that_processes_die_of_is_given_up_and_the_others_are_served(
    target_dir, plain_greedy, warm_processes
):
    async def bad(client: Client) -> str:
        with pytest.raises(ProtocolError) as given_up:
            await client.generate((5, DEADLY, 7), **OPTIONS)
        return str(given_up.value)

    async def good(client: Client, prompt: tuple[int, ...]) -> tuple[int, ...]:
        return (await client.generate(prompt, **OPTIONS)).token_ids

    async with supervised_verifier(target_dir) as (address, codes):
        config = CoordinatorConfig(
            listen=LOOPBACK,
            verifier=address,
            drafters=(),
            num_batches=2,
            max_batch_size=4,
            shape="fixed",
            reconnect_s=0.05,
            grace_s=0.1,
            trial_s=0.0,
        )
        service = Service(run_coordinator, config)
        client = await Client.connect(await service.start(), retry=NO_RETRIES)
        try:
            await until_up(client, with_drafter=False)
            text, *outputs = await gather(bad(client), *(good(client, prompt) for prompt in GOOD))
            assert "3 verifier processes ended at a step with this request in it" in text
            assert outputs == [plain_greedy(prompt, 12) for prompt in GOOD]
            assert codes == [CODE] * 3
            status = await client.status()
            assert (status.num_running, status.num_waiting, status.num_blocks_used) == (0, 0, 0)
        finally:
            await client.close()
            await service.stop()
