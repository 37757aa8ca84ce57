"""The model half on a device: exact against the CPU, and how long a step of a real size takes."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpu_checks.check import Figures, Setting, SkipCheck, require
from gpu_checks.random_model import (
    SHAPE_1_5B,
    SHAPE_7B,
    SHAPE_TINY,
    Shape,
    write_random_llama,
)
from minedraft.model.batch import RowInput
from minedraft.model.loader import load_runner
from minedraft.model.sampling import SamplingRow
from minedraft.services.verifier.acceptance import AcceptItem, accept
from minedraft.types import Acceptance, RowParams
from tests.tiny_models import make_tiny_llama

if TYPE_CHECKING:
    from minedraft.model.runner import ModelRunner

BLOCK = 16
K = 4
MAX_RELATIVE_ERROR = 1e-3


def tiny_model_exact(setting: Setting) -> Figures:
    """Greedy tokens equal those of the CPU in fp32, logits are close."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = make_tiny_llama(Path(scratch) / "m", hidden=256, layers=4)
        runners = {
            device: load_runner(directory, num_blocks=64, block_size=BLOCK, device=device)
            for device in ("cpu", setting.device)
        }
    prompts = [[3 + (row * 7 + i * 11) % 290 for i in range(5 + 13 * row)] for row in range(4)]
    tokens, logits = {}, {}
    for device, runner in runners.items():
        tokens[device], logits[device] = _greedy(runner, prompts, 12 if setting.is_short else 48)
    require(
        tokens["cpu"] == tokens[setting.device],
        f"greedy tokens differ: {tokens['cpu']} and {tokens[setting.device]}",
    )
    error = (logits["cpu"] - logits[setting.device]).abs().max() / logits["cpu"].abs().max()
    require(error < MAX_RELATIVE_ERROR, f"logits differ by {error:.2e} of their largest")
    return {"tokens": sum(map(len, tokens["cpu"])), "relative_error": f"{error:.1e}"}


def acceptance_exact(setting: Setting) -> Figures:
    """For the same logits the same drafts stand, and the same token follows, on any device."""
    generator = torch.Generator().manual_seed(1)
    vocab = 2000 if setting.is_short else 32_000
    params = [
        RowParams(),
        RowParams(temperature=1.0, seed=7),
        RowParams(temperature=0.7, top_k=50, top_p=0.9, seed=8),
        RowParams(temperature=1.3, min_p=0.02, repetition_penalty=1.2, seed=9),
        RowParams(temperature=0.9, presence_penalty=0.5, frequency_penalty=0.3, seed=10),
    ]
    num_rows, num_tokens = 0, 0
    for repeat in range(4 if setting.is_short else 20):
        logits = 3 * torch.randn(len(params) * (K + 1), vocab, generator=generator)
        likeliest = logits.view(len(params), K + 1, vocab).argmax(-1).tolist()
        outcomes = {}
        for device in ("cpu", setting.device):
            items = [
                AcceptItem(SamplingRow(one, (1, 2, 3 + repeat)), likeliest[i][:K], None)
                for i, one in enumerate(params)
            ]
            judged = accept(logits.to(device), items, Acceptance.COUPLED)
            outcomes[device] = [(outcome.token_ids, outcome.num_accepted) for outcome in judged]
        require(
            outcomes["cpu"] == outcomes[setting.device],
            f"repeat {repeat}: {outcomes['cpu']} and {outcomes[setting.device]}",
        )
        num_rows += len(params)
        num_tokens += sum(len(ids) for ids, _ in outcomes["cpu"])
    return {"rows": num_rows, "tokens": num_tokens}


def step_times_1_5b(setting: Setting) -> Figures:
    """Prefill and verify steps of a 1.5B-shaped model in bf16."""
    return _step_times(setting, SHAPE_1_5B)


def step_times_7b(setting: Setting) -> Figures:
    """Prefill and verify steps of a 7B-shaped model in bf16."""
    return _step_times(setting, SHAPE_7B)


def _step_times(setting: Setting, shape: Shape) -> Figures:
    if setting.device == "cpu" and not setting.is_short:
        raise SkipCheck("needs a GPU")
    if setting.device == "cpu":
        shape = SHAPE_TINY
    contexts = (40,) if setting.is_short else (200, 2000)
    sizes = (8,) if setting.is_short else (8, 16)
    blocks_a_row = -(-(max(contexts) + K + 1) // BLOCK)
    num_blocks = max(sizes) * blocks_a_row
    scratch = Path(tempfile.mkdtemp())
    _check_room(setting, shape, num_blocks * BLOCK, scratch)
    figures: Figures = {"parameters": f"{shape.num_parameters / 1e9:.2f}e9"}
    started = time.monotonic()
    write_random_llama(scratch / "m", shape, setting.device)
    figures["write_s"] = round(time.monotonic() - started, 1)
    started = time.monotonic()
    runner = load_runner(
        scratch / "m",
        dtype="bfloat16",
        num_blocks=num_blocks,
        block_size=BLOCK,
        device=setting.device,
    )
    figures["load_s"] = round(time.monotonic() - started, 1)
    shutil.rmtree(scratch)
    repeats = 3 if setting.is_short else 20
    for context in contexts:
        figures[f"prefill_{context}_ms"] = _time(
            setting, runner, [_row(0, blocks_a_row, 0, context, 1)], repeats
        )
        for m in sizes:
            for row in range(m):
                runner.forward([_row(row, blocks_a_row, 0, context, 1)])
            rows = [_row(row, blocks_a_row, context, K + 1, K + 1) for row in range(m)]
            figures[f"verify_m{m}_ctx{context}_ms"] = _time(setting, runner, rows, repeats)
    if setting.device == "cuda":
        figures["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    return figures


def _check_room(setting: Setting, shape: Shape, kv_tokens: int, scratch: Path) -> None:
    weights = 2 * shape.num_parameters
    disk = shutil.disk_usage(scratch).free
    if disk < 1.2 * weights:
        raise SkipCheck(f"{weights / 1e9:.0f} GB of weights, {disk / 1e9:.0f} GB of disk free")
    if setting.device == "cuda":
        wanted = 1.4 * weights + shape.kv_bytes(kv_tokens) + 2**30
        free, _ = torch.cuda.mem_get_info()
        if free < wanted:
            raise SkipCheck(f"wants {wanted / 2**30:.0f} GiB, {free / 2**30:.0f} GiB are free")


def _row(row: int, blocks_a_row: int, start: int, length: int, num_logits: int) -> RowInput:
    first = row * blocks_a_row
    tokens = [3 + (row + i) % 500 for i in range(length)]
    return RowInput(tokens, start, range(first, first + blocks_a_row), num_logits)


def _time(setting: Setting, runner: ModelRunner, rows: list[RowInput], repeats: int) -> float:
    times = []
    for repeat in range(repeats + 3):
        started = time.perf_counter()
        logits = runner.forward(rows)
        if setting.device == "cuda":
            torch.cuda.synchronize()
        if repeat >= 3:  # the first ones warm up
            times.append(1e3 * (time.perf_counter() - started))
    require(bool(torch.isfinite(logits).all()), "logits are not finite")
    return round(statistics.median(times), 2)


def _greedy(
    runner: ModelRunner, prompts: list[list[int]], num_tokens: int
) -> tuple[list[list[int]], torch.Tensor]:
    """Decode all prompts in one batch; the tokens, and the logits of every step."""
    blocks_a_row = runner.num_blocks // len(prompts)
    tables = [range(i * blocks_a_row, (i + 1) * blocks_a_row) for i in range(len(prompts))]
    fed, starts = [list(prompt) for prompt in prompts], [0] * len(prompts)
    chosen: list[list[int]] = [[] for _ in prompts]
    seen = []
    for _ in range(num_tokens):
        logits = runner.forward(
            [RowInput(t, s, b, 1) for t, s, b in zip(fed, starts, tables, strict=True)]
        )
        seen.append(logits.float().cpu())
        starts = [start + len(tokens) for start, tokens in zip(starts, fed, strict=True)]
        fed = [[int(token)] for token in logits.argmax(-1)]
        for mine, (token,) in zip(chosen, fed, strict=True):
            mine.append(token)
    return chosen, torch.cat(seen)
