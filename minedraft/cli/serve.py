"""`minedraft serve`: runs all services on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.cli.measuring import show_measuring
from minedraft.cli.models import resolve
from minedraft.cli.options import DEFAULT_ADDRESS, DTYPE_HELP, KERNELS_HELP, err
from minedraft.cpu import choose_dtype_here, remark_here
from minedraft.errors import ConfigError
from minedraft.plans import MAX_ROWS
from minedraft.policy_options import PolicyOptions, check_policy
from minedraft.security.address import check_free, check_listen
from minedraft.security.config import SecurityConfig
from minedraft.types import KERNELS, SHAPES, Mode

MODES = ("ar", "sd", "psd")


def serve(
    *,
    target: Annotated[
        str,
        typer.Option("--target", envvar="MINEDRAFT_TARGET", help="Target: directory or hub id."),
    ] = "",
    draft: Annotated[
        str, typer.Option("--draft", envvar="MINEDRAFT_DRAFT", help="Draft model: likewise.")
    ] = "",
    pair: Annotated[
        str, typer.Option(help="Demo models instead of the two: smollm2 or coder.")
    ] = "",
    mode: Annotated[
        str,
        typer.Option(help="ar: plain; sd: in turns; psd: two batches rotate."),
    ] = "psd",
    shape: Annotated[
        str,
        typer.Option(help="auto: what costs say; fixed: stay with --mode."),
    ] = "auto",
    policy: Annotated[
        str,
        typer.Option(help="Decides within k how much each step drafts and verifies."),
    ] = "fixed",
    batch: Annotated[int, typer.Option(min=1, max=MAX_ROWS, help="Most requests per batch.")] = 8,
    k: Annotated[int, typer.Option("--k", min=0, max=32, help="Draft tokens per step.")] = 4,
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    kernels: Annotated[str, typer.Option(help=KERNELS_HELP)] = "auto",
    listen: Annotated[
        str, typer.Option(envvar="MINEDRAFT_LISTEN", help="Where clients connect.")
    ] = DEFAULT_ADDRESS,
    http: Annotated[
        str, typer.Option(help="Where OpenAI-compatible clients connect; default: nowhere.")
    ] = "",
    drafter_kind: Annotated[str, typer.Option(help="model, or synthetic (for bench).")] = "model",
    num_blocks: Annotated[int, typer.Option(min=1, help="KV blocks per worker.")] = 1024,
    prefix_cache: Annotated[
        bool,
        typer.Option(help="Compute common beginnings once."),
    ] = True,
    run_ahead: Annotated[
        str, typer.Option(help="Drafts ahead of the next step: auto, off or 1..64.")
    ] = "auto",
    fallback: Annotated[
        str, typer.Option(help="What drafts where no drafts come: ngram or none.")
    ] = "ngram",
    acceptance: Annotated[
        str,
        typer.Option(help="coupled: the seed fixes the text; or rejection."),
    ] = "coupled",
    link: Annotated[
        str, typer.Option(help="Its transport; default: the coordinator chooses.")
    ] = "",
    threads: Annotated[int, typer.Option(min=1, help="Threads per worker and rank.")] = 1,
    tp_size: Annotated[int, typer.Option(min=1, help="Ranks that share the target.")] = 1,
    verifier_cpus: Annotated[
        str, typer.Option(help="Cores of the verifier, for example 0-3.")
    ] = "",
    drafter_cpus: Annotated[str, typer.Option(help="Cores of the drafter, for example 4.")] = "",
    log_dir: Annotated[str, typer.Option(help="Directory for the logs; default: a new one.")] = "",
    cost_cache: Annotated[
        str,
        typer.Option(help="Keeps what steps cost and how drafts fare; default: in the cache."),
    ] = "",
    trial_s: Annotated[
        float,
        typer.Option(min=0, help="Most time of trial steps; 0: none."),
    ] = 10.0,
    num_speculative_tokens_per_batch_size: Annotated[
        str, typer.Option(help="Policy schedule: JSON, k by batch size.")
    ] = "",
    tetris_capacity: Annotated[
        int, typer.Option(help="Policy tetris: most drafts verified per step; 0: k per row.")
    ] = 0,
    tetris_extra_proposals: Annotated[
        int, typer.Option(help="Policy tetris: draft tokens per row over k.")
    ] = 3,
    tpot_slo_ms: Annotated[
        float, typer.Option(help="Longest expected time per output token; 0: none.")
    ] = 0.0,
    security: SecurityConfig,
) -> None:
    """Start coordinator, drafter and verifier on this machine; Ctrl-C stops them."""
    check_listen("listen", listen)
    security.check_server("listen", listen)
    check_free("listen", listen)
    if http:
        check_http(http, security)
    check_arithmetic(dtype, kernels)
    policies = PolicyOptions(
        num_speculative_tokens_per_batch_size, tetris_capacity, tetris_extra_proposals, tpot_slo_ms
    )
    check_policy(policy, policies, acceptance=acceptance)
    target, draft = find_models(target, draft, pair)
    if said := remark_here(dtype):
        err.print(said, soft_wrap=True)
    spec = ClusterSpec(
        target=target,
        draft=draft,
        mode=build_mode(mode, batch, k, shape, policy),
        listen=listen,
        http=http,
        dtype=dtype,
        kernels=kernels,
        drafter_kind=drafter_kind,
        num_blocks=num_blocks,
        prefix_cache=prefix_cache,
        run_ahead=run_ahead,
        fallback=fallback,
        link=link,
        acceptance=acceptance,
        verifier_cpus=verifier_cpus,
        drafter_cpus=drafter_cpus,
        threads=threads,
        tp_size=tp_size,
        log_dir=log_dir,
        cost_cache=cost_cache or find_cost_cache(),
        trial_s=trial_s,
        policies=policies,
        security=security,
    )
    if spec.mode.num_draft_tokens and not draft:
        raise ConfigError(f"draft='': mode {mode} needs a drafter; give --draft, or --mode ar")
    asyncio.run(run_until_stopped(spec))


def check_http(http: str, security: SecurityConfig) -> None:
    """Refuse an address for HTTP, or a missing extra, before models are loaded.

    Raises:
        ConfigError: what is wrong.
    """
    check_listen("http", http)
    security.check_server("http", http)
    check_free("http", http)
    if importlib.util.find_spec("fastapi") is None:
        raise ConfigError(f"http={http!r}: needs pip install 'minedraft[gateway]'")


def curl_line(address: str, security: SecurityConfig) -> str:
    """Return a command that shows the HTTP port at work."""
    scheme = "https" if security.tls_cert else "http"
    trust = f" --cacert {shlex.quote(security.tls_ca)}" if scheme == "https" else ""
    key = " -H 'Authorization: Bearer KEY'" if security.token_file else ""
    return (
        f"curl {scheme}://{address}/v1/completions{trust}{key} "
        "-H 'Content-Type: application/json' "
        """-d '{"prompt": "Hello", "max_tokens": 32}'"""
    )


async def run_until_stopped(spec: ClusterSpec) -> None:
    """Run the services until SIGINT, SIGTERM or the death of one of them.

    Raises:
        ChildError: one of them ended by itself.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    stopping = loop.create_task(stop.wait(), name="stop")
    serving = loop.create_task(_serve(spec), name="serve")
    await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        stopping.cancel()
        await serving
        return
    err.print("stopping ...")
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving  # what fails on the way down is said
    err.print("stopped")


async def _serve(spec: ClusterSpec) -> None:
    async with started(spec) as cluster:
        err.print(f"logs: {cluster.log_dir}", soft_wrap=True)
        err.print(f'serving at {cluster.address}; try: {called_as(sys.argv[0])} generate "Hello" '
                  f"-a {cluster.address}", soft_wrap=True)  # fmt: skip
        if cluster.http_address:
            err.print(f"HTTP: {curl_line(cluster.http_address, spec.security)}", soft_wrap=True)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(show_measuring(cluster, err), name="measuring")
                await cluster.watch()
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from None


def find_cost_cache() -> str:
    """Find the directory of the user that keeps what steps cost.

    Raises:
        ConfigError: there is no home, and MINEDRAFT_CACHE does not say where else.
    """
    from minedraft.hub.cache import cache_root

    return str(cache_root() / "costs")


def called_as(program: str) -> str:
    """Find what a user must type to run another command of this program.

    Args:
        program: `sys.argv[0]` of this process.
    """
    if Path(program).suffix == ".py":  # python -m
        return f"{shlex.quote(sys.executable)} -m minedraft.cli.main"
    name = Path(program).name
    found = shutil.which(name)
    is_on_path = found is not None and Path(found).resolve() == Path(program).resolve()
    return name if is_on_path else shlex.quote(program)


class started:  # noqa: N801  # used as a function
    """Starts a cluster and shows progress meanwhile; use `async with`."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._begin = time.monotonic()
        self._status = err.status(_waiting_for(spec, set()))
        self._up: set[str] = set()
        self._cluster = Cluster(spec, on_ready=self._on_ready)

    async def __aenter__(self) -> Cluster:
        """Start it."""
        with self._status:
            return await self._cluster.__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        """Stop it."""
        await self._cluster.__aexit__(None, None, None)

    def _on_ready(self, role: str, address: str) -> None:
        self._up.add(role)
        err.print(f"{role} ready at {address} after {time.monotonic() - self._begin:.1f} s")
        self._status.update(_waiting_for(self._spec, self._up))


def _waiting_for(spec: ClusterSpec, up: set[str]) -> str:
    more = ["gateway"] if spec.http else []
    roles = ["verifier", *(["drafter"] if spec.draft else []), "coordinator", *more]
    return f"starting {', '.join(role for role in roles if role not in up)} ..."


def build_mode(mode: str, batch: int, k: int, shape: str = "fixed", policy: str = "fixed") -> Mode:
    """Turn `ar`, `sd` or `psd`, who may change it, and the policy into a mode.

    Raises:
        ConfigError: another word, or drafts wanted but none allowed.
    """
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r}: want one of {', '.join(MODES)}")
    if shape not in SHAPES:
        raise ConfigError(f"shape={shape!r}: want one of {', '.join(SHAPES)}")
    if mode != "ar" and k == 0:
        raise ConfigError(f"k=0: mode {mode} drafts at least one token; use --mode ar")
    return Mode(2 if mode == "psd" else 1, batch, 0 if mode == "ar" else k, shape, policy)


def check_arithmetic(dtype: str, kernels: str) -> None:
    """Refuse a dtype or kernels that do not exist, before models are fetched.

    Raises:
        ConfigError: names the option and its value.
    """
    choose_dtype_here(dtype)
    if kernels not in KERNELS:
        raise ConfigError(f"kernels={kernels!r}: want one of {', '.join(KERNELS)}")


def find_models(target: str, draft: str, pair: str) -> tuple[str, str]:
    """Find the directories of target and draft.

    Raises:
        ConfigError: no target, or a pair and a target at once.
    """
    if pair:
        if target or draft:
            raise ConfigError(f"pair={pair!r}: give a pair, or --target and --draft, not both")
        from minedraft.hub.pairs import ensure_pair

        found = ensure_pair(pair)
        return str(found.target_dir), str(found.draft_dir)
    if not target:
        raise ConfigError("target='': give --target, or --pair smollm2")
    return resolve(target, option="target"), resolve(draft, option="draft") if draft else ""
