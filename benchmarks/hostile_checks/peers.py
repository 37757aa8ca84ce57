"""Kinds 4, 8, 18: a worker of nonsense, a second coordinator, a caller with another's id."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
from fleet import Service, until

from hostile_checks.stage import PATIENT, is_linked
from minedraft.client import NO_RETRIES, Client
from minedraft.errors import MineDraftError
from minedraft.types import FinishReason
from minedraft.v1 import drafter_pb2, types_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hostile_checks.stage import Stage, Trial

_GARBAGE = b"\xff" * 64
_NOTICED_S = 3.0
_TAKES_OVER_S = 30.0


class _Liar(grpc.GenericRpcHandler):
    """A drafter that says who it is, and then nonsense."""

    def __init__(self, info: bytes, session: bytes) -> None:
        self._info = info
        self._session = session
        self.num_calls = 0

    def service(self, call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        self.num_calls += 1
        if call_details.method.endswith("/Session"):
            return grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._unary)

    async def _unary(self, _request: bytes, _context: object) -> bytes:
        return self._info

    async def _stream(self, _requests: object, context: grpc.aio.ServicerContext) -> None:
        for _ in range(3):
            await context.write(self._session)
        await asyncio.sleep(3600)


@asynccontextmanager
async def lying_drafter(info: bytes, session: bytes) -> AsyncIterator[tuple[str, _Liar]]:
    server, liar = grpc.aio.server(), _Liar(info, session)
    server.add_generic_rpc_handlers((liar,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", liar
    finally:
        await server.stop(0)


async def honest_info(trial: Trial) -> drafter_pb2.DrafterGetInfoResponse:
    """What a trial's own drafter says of itself, under another name."""
    address = trial.fleet.services["drafter"].address
    async with grpc.aio.insecure_channel(address) as channel:
        said = await channel.unary_unary("/minedraft.v1.Drafter/GetInfo")(b"")
    info = drafter_pb2.DrafterGetInfoResponse.FromString(said)
    info.identity.instance_id = "liar"
    return info


async def hostile_worker(stage: Stage) -> None:
    """A second drafter whose every answer is nonsense, of several kinds."""
    async with stage.trial("a drafter to copy", has_load=False) as trial:
        info = await honest_info(trial)
    sizes = drafter_pb2.DrafterGetInfoResponse()
    sizes.CopyFrom(info)
    huge = 2**64 - 1
    extreme = drafter_pb2.DrafterSessionResponse(
        result=drafter_pb2.DraftResult(
            step_id=huge, batch=2**32 - 1, num_draft_tokens=2**32 - 1, num_rows=2**32 - 1,
            epoch=huge, timing=types_pb2.StepTiming(started_unix_ns=huge, total_ns=huge),
        )
    ).SerializeToString()  # fmt: skip
    sizes.model.num_blocks, sizes.model.block_size = 2**32 - 1, 0
    cases = {
        "no protobuf": (_GARBAGE, _GARBAGE),
        "an honest name, then no protobuf": (info.SerializeToString(), _GARBAGE),
        "results of unknown steps": (info.SerializeToString(), extreme),
        "impossible sizes": (sizes.SerializeToString(), extreme),
    }
    silent = []
    for name, (says, session) in cases.items():
        async with lying_drafter(says, session) as (address, liar):
            trial_name = f"hostile worker, {name}"
            async with stage.trial(trial_name, also_drafters=(address,)) as trial:
                await asyncio.sleep(_NOTICED_S)
                await trial.streams_again()
                await trial.drafts_again()
                workers = (await trial.watcher.status()).workers
                if not liar.num_calls or not any(w.last_error for w in workers):
                    silent.append(f"{name}: {[w.last_error for w in workers]}")
    stage.say("hostile worker: cases of which status gives no reason", len(silent), 0,
              detail="; ".join(silent)[:300])  # fmt: skip


async def two_coordinators(stage: Stage) -> None:
    """A second coordinator dials the same workers; then the first one dies."""
    async with stage.trial("two coordinators") as trial:
        second = Service(
            "coordinator",
            trial.fleet.services["coordinator"].arguments,
            trial.fleet.services["coordinator"].log_dir,
        )
        await second.start()
        try:
            async with await Client.connect(second.address, retry=NO_RETRIES) as client:
                sessions = await _sessions(trial)
                await asyncio.sleep(_NOTICED_S)
                await trial.streams_again()
                status = await client.status()
                taken = await _sessions(trial) - sessions
                says = [w.last_error for w in status.workers if w.last_error]
        finally:
            await second.stop()
    stage.say("two coordinators: sessions that changed hands", taken, 0)
    stage.say("two coordinators: the second does not say why it does not serve", not says, 0,
              detail="; ".join(says)[:200])  # fmt: skip
    await _takes_over(stage)


async def _sessions(trial: Trial) -> int:
    logs = trial.fleet.services["verifier"].log_dir.glob("verifier*.log")
    return sum(path.read_text(errors="replace").count("session.started") for path in logs)


async def _takes_over(stage: Stage) -> None:
    async with stage.trial("a coordinator that takes over", has_load=False) as trial:
        first = trial.fleet.services["coordinator"]
        second = Service("coordinator", first.arguments, first.log_dir)
        await second.start()
        try:
            async with await Client.connect(second.address, retry=PATIENT) as client:
                await first.kill()
                async with asyncio.timeout(2 * _TAKES_OVER_S):
                    await until(client, is_linked)
                asked = stage.requests[1]
                got = await client.generate(
                    list(asked.token_ids), max_tokens=asked.max_tokens, ignore_eos=True,
                    temperature=0.0,
                )  # fmt: skip
                changed = got.token_ids != stage.reference[1]
        finally:
            await second.stop()
            await first.start()
        await until(trial.watcher, is_linked)
    stage.say("a coordinator that takes over: outputs changed", changed, 0)


async def one_id(stage: Stage) -> None:
    """Two callers with one request id, while the verifier is away and while the coordinator is."""
    wrong = []
    async with stage.trial("one id, two callers", has_load=False) as trial:
        for role in ("verifier", "coordinator"):
            service = trial.fleet.services[role]
            await service.kill()
            asked = stage.requests[1]
            async with await _second_client(trial, role) as other:
                calls = [
                    asyncio.create_task(
                        client.generate(
                            list(asked.token_ids), max_tokens=asked.max_tokens, temperature=0.0,
                            ignore_eos=True, request_id=f"same-{role}", timeout_s=60.0,
                        )
                    )
                    for client in (trial.client, other)
                ]  # fmt: skip
                await asyncio.sleep(0.5)
                await service.start()
                for call in calls:
                    try:
                        got = await call
                    except MineDraftError:
                        continue  # a typed error is what the other one may get
                    if got.token_ids != stage.reference[1]:
                        wrong.append(f"{role} away: {got.finish_reason} of {len(got.token_ids)}")
                    elif got.finish_reason is not FinishReason.LENGTH:
                        wrong.append(f"{role} away: {got.finish_reason}")
            await until(trial.watcher, is_linked)
    stage.say("one id, two callers: answers that are neither whole nor an error", len(wrong), 0,
              detail="; ".join(wrong))  # fmt: skip


async def _second_client(trial: Trial, role: str) -> Client:
    """A client that exists although the coordinator may be away."""
    if role == "coordinator":
        await trial.fleet.services["coordinator"].start()
        client = await Client.connect(trial.fleet.address, retry=PATIENT)
        await trial.fleet.services["coordinator"].kill()
        return client
    return await Client.connect(trial.fleet.address, retry=PATIENT)
