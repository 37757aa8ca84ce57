from __future__ import annotations

import json

import pytest

from minedraft import errors
from minedraft.bench.modes import MODES, Cores
from minedraft.bench.runner import BenchOptions, calibrate, run_bench
from minedraft.client import Client
from minedraft.types import Mode
from tests.fake_coordinator import FakeCoordinator, serve

PROMPTS = tuple(f"prompt {i}" for i in range(12))


def options(**changes) -> BenchOptions:
    values = {"prompts": PROMPTS, "batch": 2, "num_draft_tokens": 4, "max_tokens": 12}
    return BenchOptions(**{**values, **changes})


async def test_every_mode_runs_every_prompt_and_the_mode_is_restored(
    client: Client, fake: FakeCoordinator
):
    result = await run_bench(client, options())
    assert list(result.modes) == ["ar", "ar_2m", "sd", "sd_2m", "psd"]
    assert fake.modes == [
        Mode(1, 2, 0), Mode(1, 4, 0), Mode(1, 2, 4), Mode(1, 4, 4), Mode(2, 2, 4), Mode(2, 8, 4),
    ]  # fmt: skip
    assert all(len(mode.records) == len(PROMPTS) for mode in result.modes.values())
    assert result.identical_outputs
    assert result.agreement == 1


async def test_requests_are_greedy_and_of_fixed_length(client: Client, fake: FakeCoordinator):
    await run_bench(client, options(modes=("sd",)))
    for request in fake.requests:
        assert request.sampling.temperature == 0
        assert request.sampling.ignore_eos
        assert request.messages is not None
    await run_bench(client, options(modes=("sd",), use_chat=False))
    assert fake.requests[-1].text is not None


async def test_the_document_has_the_promised_keys_and_plain_numbers(client: Client):
    result = await run_bench(client, options())
    document = json.loads(json.dumps(result.to_json()))
    wanted = {
        "tokens_per_s", "acceptance_rate", "mean_acceptance_length", "verify_ms_p50",
        "draft_ms_p50", "step_ms_p50", "bubble_ms_p50", "ttft_ms_p50", "tpot_ms_p50",
        "ttft_ms_p99", "tpot_ms_p99", "e2e_ms_p50", "e2e_ms_p99", "outputs_sha256",
    }  # fmt: skip
    for mode in document["modes"].values():
        assert wanted <= mode.keys()
    assert len({mode["outputs_sha256"] for mode in document["modes"].values()}) == 1
    psd, sd = document["modes"]["psd"], document["modes"]["sd"]
    # the double's psd takes 11 ms a step of which 10 are V; its sd 19 ms
    assert psd["step_ms_p50"] == pytest.approx(11)
    assert sd["step_ms_p50"] == pytest.approx(19)
    assert document["overlap_efficiency"] == pytest.approx(10 / 11)
    assert document["psd_over_sd"] == pytest.approx(19 / 11, rel=0.1)
    assert document["psd_over_sd_predicted"] == pytest.approx(1.8)
    assert document["psd_over_sd_2m_predicted"] == pytest.approx(0.9)
    assert document["psd_over_sd_2m"] is not None
    assert psd["acceptance_rate"] == pytest.approx(0.5)
    assert psd["mean_acceptance_length"] == pytest.approx(3)
    assert document["modes"]["ar"]["draft_ms_p50"] == 0
    assert document["machine"]["cores"] >= 1


async def test_ar_all_runs_the_same_prompts_on_the_other_service(
    client: Client, fake: FakeCoordinator
):
    async with (
        serve(FakeCoordinator()) as other,
        await Client.connect(other.address) as all_cores,
    ):
        wanted = options(modes=MODES, warmup_tokens=0, cores=Cores("0", "1"))
        result = await run_bench(client, wanted, all_cores=all_cores)
        assert other.modes == [Mode(1, 4, 0)]
        assert len(other.requests) == len(PROMPTS)
        speeds = await calibrate(client, wanted, num_tokens=3, all_cores=all_cores)
    assert list(result.modes) == ["ar", "ar_2m", "ar_all", "sd", "sd_2m", "psd"] == list(speeds)
    assert Mode(1, 4, 0) in fake.modes, "ar_2m stays where it was"
    assert result.identical_outputs
    document = result.to_json()
    assert document["psd_over_ar_all"] == pytest.approx(3 * 2 / 4 * 11 / 11, rel=0.35)
    assert document["modes"]["ar_all"]["cores"] == "0,1"
    assert document["modes"]["ar"]["cores"] == "0"


async def test_an_output_that_differs_on_all_cores_is_seen(client: Client):
    other = FakeCoordinator()
    plain = other._events

    async def drifting(request):
        async for event in plain(type(request)(text="other", sampling=request.sampling)):
            yield event

    other._events = drifting
    async with serve(other), await Client.connect(other.address) as all_cores:
        result = await run_bench(client, options(modes=("ar", "ar_all")), all_cores=all_cores)
    assert not result.identical_outputs


async def test_ar_all_without_a_service_for_it_is_refused_before_anything_is_measured(
    client: Client, fake: FakeCoordinator
):
    for call in (run_bench(client, options(modes=MODES)),
                 calibrate(client, options(modes=MODES), num_tokens=3)):  # fmt: skip
        with pytest.raises(errors.ConfigError, match=r"ar_all.*services of its own"):
            await call
    assert not fake.requests


async def test_spans_of_the_warm_up_and_of_earlier_modes_are_left_out(client: Client):
    result = await run_bench(client, options())
    for earlier, later in (("ar", "ar_2m"), ("sd_2m", "psd")):
        newest = max(span.start_ns for span in result.modes[earlier].spans)
        assert min(span.start_ns for span in result.modes[later].spans) > newest
    num_tokens = len(PROMPTS) * 12
    sd = result.modes["sd"]
    num_verifies = sum(span.lane == "verify" for span in sd.spans)
    assert num_verifies == num_tokens // 3  # the double commits three tokens per step and request


async def test_another_output_in_one_mode_is_seen(client: Client, fake: FakeCoordinator):
    plain = fake._events

    async def drifting(request):
        if fake.mode.num_batches == 2 and "prompt 3" in str(request.messages):
            request = type(request)(text="something else", sampling=request.sampling)
        async for event in plain(request):
            yield event

    fake._events = drifting
    result = await run_bench(client, options())
    assert not result.identical_outputs
    assert result.agreement == pytest.approx(11 / 12)
    hashes = {name: mode.to_json()["outputs_sha256"] for name, mode in result.modes.items()}
    assert hashes["psd"] != hashes["ar"] == hashes["sd"]


async def test_synthetic_acceptance_sends_the_targets_own_output_as_reference(
    client: Client, fake: FakeCoordinator
):
    result = await run_bench(client, options(synthetic_acceptance=0.8))
    drafted = [r for r in fake.requests if r.debug is not None]
    assert drafted
    assert {round(r.debug.synthetic_acceptance, 6) for r in drafted} == {0.8}
    by_prompt = dict(zip(PROMPTS, result.modes["ar"].outputs, strict=True))
    for request in drafted:
        prompt = request.messages[0].content
        assert request.debug.reference_token_ids == by_prompt[prompt]
    plain = fake.requests[: -len(drafted)]
    assert all(r.debug is None for r in plain)


async def test_synthetic_acceptance_without_ar_writes_its_reference_first(
    client: Client, fake: FakeCoordinator
):
    result = await run_bench(client, options(modes=("psd",), synthetic_acceptance=0.5))
    assert list(result.modes) == ["psd"]
    assert fake.modes[0] == Mode(1, 4, 0)
    assert result.identical_outputs


async def test_synthetic_acceptance_needs_a_synthetic_drafter(
    client: Client, fake: FakeCoordinator
):
    fake.drafter_kind = "model"
    with pytest.raises(errors.ConfigError, match="'model'"):
        await run_bench(client, options(synthetic_acceptance=0.8))
    fake.drafter_kind = "synthetic"
    with pytest.raises(errors.ConfigError, match=r"1\.5"):
        await run_bench(client, options(synthetic_acceptance=1.5))


async def test_synthetic_acceptance_needs_a_coordinator_that_takes_debug_options(
    client: Client, fake: FakeCoordinator
):
    fake.takes_debug_requests = False
    with pytest.raises(errors.ConfigError, match="--debug-requests"):
        await run_bench(client, options(synthetic_acceptance=0.8))
    assert not fake.requests, "said before anything is measured"


async def test_a_failed_request_ends_the_bench_with_its_error(
    client: Client, fake: FakeCoordinator
):
    def refuse(request):
        raise errors.InvalidRequestError("prompt: too long", field="prompt")

    fake.events = refuse
    with pytest.raises(errors.InvalidRequestError, match="too long"):
        await run_bench(client, options())


async def test_a_calibration_fills_every_measurements_slots_once_and_restores_the_mode(
    client: Client, fake: FakeCoordinator
):
    speeds = await calibrate(client, options(), num_tokens=3)
    assert list(speeds) == ["ar", "ar_2m", "sd", "sd_2m", "psd"]
    assert [request.sampling.max_tokens for request in fake.requests] == [3] * (2 + 4 + 2 + 4 + 4)
    assert fake.modes[-1] == Mode(2, 8, 4)
    assert all(speed.prompt_s > 0 for speed in speeds.values())


async def test_what_a_calibration_has_warmed_up_is_not_warmed_up_again(
    client: Client, fake: FakeCoordinator
):
    await run_bench(client, options(modes=("psd",), warmup_tokens=0))
    assert len(fake.requests) == len(PROMPTS)


async def test_progress_adds_up_to_what_it_announced(client: Client):
    class Watcher:
        def __init__(self):
            self.phases: list[list] = []

        def begin(self, name, num_tokens):
            self.phases.append([name, num_tokens, 0])

        def advance(self, num_tokens):
            self.phases[-1][2] += num_tokens

    watcher = Watcher()
    await run_bench(client, options(modes=("psd",)), progress=watcher)
    assert [phase[0] for phase in watcher.phases] == ["psd warm-up", "psd"]
    assert all(announced == seen for _, announced, seen in watcher.phases)
