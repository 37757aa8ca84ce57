"""`minedraft serve`'s cluster for real: three processes, tiny models."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from minedraft.bench.runner import BenchOptions, run_bench
from minedraft.cli.child import ChildError
from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.types import Mode
from tests.tiny_models import make_tiny_llama

pytestmark = [pytest.mark.multiproc, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return (
        str(make_tiny_llama(root / "target", seed=1)),
        str(make_tiny_llama(root / "draft", seed=2)),
    )


@pytest.fixture
def spec(models, tmp_path):
    return ClusterSpec(
        target=models[0],
        draft=models[1],
        mode=Mode(2, 2, 3),
        listen="127.0.0.1:0",
        num_blocks=256,
        drafter_kind="synthetic",
        log_dir=str(tmp_path / "logs"),
    )


async def test_three_processes_serve_and_the_bench_agrees_with_itself(spec):
    prompts = tuple(f"the quick brown fox {i}" for i in range(12))
    options = BenchOptions(prompts, batch=2, num_draft_tokens=3, max_tokens=24)
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        plain = await run_bench(client, options)
        synthetic = await run_bench(
            client,
            BenchOptions(
                prompts, batch=2, num_draft_tokens=3, max_tokens=24, synthetic_acceptance=0.9
            ),
        )
        status = await client.status()
    assert plain.identical_outputs
    assert synthetic.identical_outputs
    assert synthetic.reference == plain.reference
    rates = [r.modes["psd"].speculation.acceptance_rate for r in (plain, synthetic)]
    assert rates[0] < 0.5 < rates[1]
    assert plain.modes["psd"].steady.num_steps > 0
    assert plain.overlap_efficiency > 0
    assert status.num_blocks_used == 0
    assert status.mode == spec.mode


async def test_the_death_of_a_process_is_told_and_the_others_are_stopped(spec, warm_processes):
    with pytest.raises(ChildError, match="verifier was killed by signal 9"):  # noqa: PT012
        async with Cluster(spec) as cluster:
            children = list(cluster._children)
            os.kill(children[0]._process.pid, signal.SIGKILL)
            await asyncio.wait_for(cluster.watch(), 30)
    assert all(child._process.returncode is not None for child in children)


async def test_a_process_that_cannot_start_says_why(spec, tmp_path, warm_processes):
    broken = ClusterSpec(
        target=str(tmp_path), draft=spec.draft, listen="127.0.0.1:0", log_dir=spec.log_dir
    )
    with pytest.raises(ChildError, match="the verifier ended with exit code 1") as caught:
        async with Cluster(broken):
            pass
    assert str(tmp_path) in str(caught.value)
    assert "Traceback" not in str(caught.value)
