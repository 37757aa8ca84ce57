"""What scores of drafts know on a real pair: AUC for acceptance, and calibration of survival.

The target writes outputs with its own noise. Then the drafter's engine drafts at every position of
them, as in a service whose steps commit one token each, and says scores and outcomes. For the same
positions its logits give the signals that others use. Curves sigma(w m + b), one per position, are
fitted on every other request and tried on the rest, then the other way round.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from lines import Line

from minedraft.bench.prompts import load_prompts
from minedraft.hub.pairs import ensure_pair
from minedraft.model.batch import RowInput
from minedraft.model.loader import load_runner
from minedraft.model.sampling import Position, SamplingRow, draw
from minedraft.plans import DraftPlan, DraftRow, OpenRow, Score
from minedraft.selection import NUM_CLASSES, Curves
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.services.drafter.draft_engine import DraftEngine
from minedraft.types import RowId, RowParams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from minedraft.model.runner import ModelRunner
    from sched_checks.check import Report

    Floats = NDArray[np.float64]

DATA: Final = Path(__file__).parents[2] / "data"
PROMPTS: Final = {"smollm2": "spec_bench.jsonl", "coder": "humaneval.jsonl"}
TEMPERATURES: Final = (0.0, 0.8, 1.0)
SIZES: Final = {"smollm2": (48, 64), "coder": (32, 48)}
"""Requests, and output tokens of each."""
MAX_PROMPT_CHARS: Final = 500
BATCH, K, BLOCK = 16, 4, 16
NUM_BINS: Final = 10
RIDGE: Final = 1e-2
RIVALS: Final = ("logit margin", "q(x)", "negative entropy")


def measure(pair: str, temperature: float) -> Report:
    """Draft along outputs of the target at one temperature."""
    torch.set_num_threads(1)
    paths = ensure_pair(pair)
    num_requests, num_tokens = SIZES[pair]
    texts = load_prompts(DATA / PROMPTS[pair], limit=num_requests, max_chars=MAX_PROMPT_CHARS)
    tokenizer = Tokenizer.from_directory(paths.target_dir)
    rows = [
        SamplingRow(
            RowParams(temperature=temperature, seed=seed),
            tokenizer.encode_chat([("user", text)]),
        )
        for seed, text in enumerate(texts)
    ]
    begin = time.monotonic()
    target = _load(paths.target_dir, rows, num_tokens)
    for start in range(0, len(rows), BATCH):
        _write(target, rows[start : start + BATCH], num_tokens)
    del target
    gc.collect()
    written = time.monotonic()
    drafter = _load(paths.draft_dir, rows, num_tokens)
    signals = [_signals(drafter, row) for row in rows]
    drafts: list[dict[int, _Drafts]] = []
    for start in range(0, len(rows), BATCH):
        drafts += _draft(drafter, rows[start : start + BATCH])
    return {
        "pair": pair,
        "temperature": temperature,
        "seconds": {"target": written - begin, "drafter": time.monotonic() - written},
        **_auc(drafts, signals),
        **_calibration(drafts, temperature),
    }


def lines(report: Report) -> Iterator[Line]:
    """AUC of the margin, its lead, and the calibration error."""
    name = f"{report['pair']}, T = {report['temperature']:g}"
    auc = report["auc"]
    others = ", ".join(f"{rival} {auc[rival]:.3f}" for rival in RIVALS)
    detail = f"{others}; {report['num_labels']} drafts, acceptance {report['acceptance']:.2f}"
    is_goal = report["pair"] == "coder" and report["temperature"] > 0
    yield Line(
        f"AUC for acceptance of the margin: {name}",
        auc["margin"],
        0.75 if is_goal else 0.5,
        at_most=False,
        detail=detail,
    )
    if is_goal:
        lead = auc["margin"] - max(auc[rival] for rival in RIVALS)
        yield Line(f"its lead over the best other signal: {name}", lead, 0.05, at_most=False)
    yield Line(
        f"calibration error of survival: {name}",
        report["calibration_error"],
        0.03,
        detail=f"worst bin {report['largest_error']:.3f}, {report['num_survivals']} held out",
    )


class _Drafts:
    """Drafts from one base."""

    def __init__(self, scores: tuple[float, ...]) -> None:
        self.scores = scores
        self.num_matched = self.num_resolved = 0


def _load(path: Path, rows: list[SamplingRow], num_tokens: int) -> ModelRunner:
    longest = max(len(row.prompt_token_ids) for row in rows) + num_tokens + K + 1
    return load_runner(path, dtype="float32", num_blocks=BATCH * (-(-longest // BLOCK) + 1))


def _tables(runner: ModelRunner, rows: list[SamplingRow]) -> list[list[int]]:
    per_row = runner.num_blocks // len(rows)
    return [list(range(i * per_row, (i + 1) * per_row)) for i in range(len(rows))]


def _write(target: ModelRunner, rows: list[SamplingRow], num_tokens: int) -> None:
    """Let the target write, plainly."""
    tables = _tables(target, rows)
    logits = torch.cat(  # one prompt per pass: together they would need more memory
        [
            target.forward([RowInput(row.prompt_token_ids, 0, blocks, 1)])
            for row, blocks in zip(rows, tables, strict=True)
        ]
    )
    for number in range(num_tokens):
        tokens = draw(logits, [Position(row) for row in rows], target.draw_kernel)
        for row, token in zip(rows, tokens, strict=True):
            row.set_committed(row.num_tokens + 1, [token])
        if number + 1 < num_tokens:
            inputs = [
                RowInput([token], row.num_tokens - 1, blocks, 1)
                for row, token, blocks in zip(rows, tokens, tables, strict=True)
            ]
            logits = target.forward(inputs)


def _signals(drafter: ModelRunner, row: SamplingRow) -> dict[str, list[float]]:
    """What others predict acceptance by, one value per output token; higher is surer."""
    tokens, num_prompt = row.prompt_token_ids + row.output_token_ids, len(row.prompt_token_ids)
    table = _tables(drafter, [row])[0]
    given = RowInput(tokens[:-1], 0, table, len(row.output_token_ids))
    logits = drafter.forward([given]).float()
    params = row.params
    positions = [
        Position(SamplingRow(params, tokens[:end])) for end in range(num_prompt, len(tokens))
    ]
    drawn = draw(logits, positions, drafter.draw_kernel)
    log_q = (logits / (params.temperature or 1.0)).log_softmax(-1)
    two = logits.topk(2).values
    return {
        "logit margin": (two[:, 0] - two[:, 1]).tolist(),
        "q(x)": log_q.gather(1, torch.tensor(drawn)[:, None])[:, 0].tolist(),
        "negative entropy": (log_q.exp() * log_q).sum(-1).tolist(),
    }


def _draft(drafter: ModelRunner, rows: list[SamplingRow]) -> list[dict[int, _Drafts]]:
    """Draft at every position of the outputs: per row, drafts by committed length."""
    engine = DraftEngine(drafter, "model", prefix_cache=False)
    opens = tuple(
        OpenRow(RowId(i), tuple(row.prompt_token_ids), (), row.params)
        for i, row in enumerate(rows, 1)
    )
    found: list[dict[int, _Drafts]] = [{} for _ in rows]
    num_tokens = len(rows[0].output_token_ids)
    # Behind the last output token every step judges what older drafts still wait for.
    for number in range(num_tokens + 2 * K):
        step = min(number, num_tokens)
        planned = tuple(
            DraftRow(
                RowId(i),
                len(row.prompt_token_ids) + step,
                tuple(row.output_token_ids[max(step - 1, 0) : step]),
                K if number < num_tokens else 0,
            )
            for i, row in enumerate(rows, 1)
        )
        plan = DraftPlan(number + 1, 0, 1, planned, () if number else opens, score=Score.MARGIN)
        result = engine.step(plan, plan_ns=time.perf_counter_ns(), send=lambda _packet: None)
        if result is None:
            raise AssertionError("a plan with rows has a result")
        for row_result, drafts in zip(result.rows, found, strict=True):
            if row_result.judged_len:
                judged = drafts[row_result.judged_len]
                judged.num_matched = row_result.num_matched
                judged.num_resolved = row_result.num_resolved
            if row_result.scores:
                drafts[row_result.base_len] = _Drafts(row_result.scores)
    return found


def _auc(drafts: list[dict[int, _Drafts]], signals: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Of first drafts: each position is drafted once, and once only."""
    values: dict[str, list[float]] = {name: [] for name in ("margin", *RIVALS)}
    labels: list[bool] = []
    for row, own in zip(drafts, signals, strict=True):
        first = min(row)
        for base_len, each in row.items():
            if not each.num_resolved:
                continue
            labels.append(each.num_matched > 0)
            values["margin"].append(each.scores[0])
            for name in RIVALS:
                values[name].append(own[name][base_len - first])
    truth = np.array(labels)
    auc = {name: area(np.array(some), truth) for name, some in values.items()}
    return {"auc": auc, "num_labels": len(labels), "acceptance": float(truth.mean())}


def _calibration(drafts: list[dict[int, _Drafts]], temperature: float) -> dict[str, Any]:
    """Fit on every other request and predict survival on the rest, then the other way round."""
    halves = (drafts[::2], drafts[1::2])
    both = [_curves(half) for half in halves]
    predicted, stood = [], []
    for half, curves in zip(halves, reversed(both), strict=True):
        for row in half:
            end = max(row) + 1
            for base_len, each in row.items():
                if base_len + len(each.scores) > end:
                    continue  # near the end only wrong drafts could be judged
                survival = 1.0
                for position, score in enumerate(each.scores):
                    survival *= curves.factor(0, position, score)
                    predicted.append(survival)
                    stood.append(each.num_matched > position)
    errors, sizes = bin_errors(np.array(predicted), np.array(stood, dtype=float))
    return {
        "temperature": temperature,
        "slopes": both[0].slopes[:K],
        "biases": both[0].biases[:K],
        "calibration_error": float((errors * sizes).sum() / sizes.sum()),
        "largest_error": float(errors.max()),
        "num_survivals": len(predicted),
        "drafts": [
            {base_len: (*each.scores, each.num_matched, each.num_resolved)}
            for row in drafts
            for base_len, each in row.items()
        ],
    }


def _curves(drafts: list[dict[int, _Drafts]]) -> Curves:
    """Fit one curve per position to the drafts that are judged."""
    slopes, biases = [], []
    for position in range(K):
        pairs = [
            (each.scores[position], each.num_matched > position)
            for row in drafts
            for each in row.values()
            if each.num_resolved > position
        ]
        slope, bias = fit(*(np.array(column, dtype=float) for column in zip(*pairs, strict=True)))
        slopes.append(slope)
        biases.append(bias)
    return Curves(tuple(slopes) * NUM_CLASSES, tuple(biases) * NUM_CLASSES)


def area(values: Floats, labels: NDArray[np.bool_]) -> float:
    """Probability that a right draft has the higher value of two; equal ones count half."""
    order = np.argsort(values, kind="stable")
    _, index, counts = np.unique(values[order], return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[index]
    right = labels[order]
    num_right, num_wrong = right.sum(), (~right).sum()
    if not num_right or not num_wrong:
        return 0.5
    return float((ranks[right].sum() - num_right * (num_right + 1) / 2) / (num_right * num_wrong))


def fit(scores: Floats, labels: Floats) -> tuple[float, float]:
    """Slope and bias of a logistic curve, by Newton steps with a ridge."""
    features = np.stack([scores, np.ones_like(scores)])
    weights = np.zeros(2)
    for _ in range(25):
        predicted = 1 / (1 + np.exp(-weights @ features))
        gradient = features @ (labels - predicted) - RIDGE * weights
        hessian = (features * (predicted * (1 - predicted))) @ features.T + RIDGE * np.eye(2)
        weights = weights + np.linalg.solve(hessian, gradient)
    return float(weights[0]), float(weights[1])


def bin_errors(predicted: Floats, stood: Floats) -> tuple[Floats, Floats]:
    """By bins of equal count: |mean prediction - share that stood|, and how many are in it."""
    order = np.argsort(predicted, kind="stable")
    pieces = np.array_split(order, NUM_BINS)
    errors = [abs(predicted[piece].mean() - stood[piece].mean()) for piece in pieces]
    return np.array(errors), np.array([float(len(piece)) for piece in pieces])
