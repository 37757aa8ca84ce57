"""Ranges of all numbers that coordinator and workers send each other in a session. Pure.

Both believe the other's numbers only within these ranges: an answer ends in sums, pictures and
messages of fixed width, a plan in loops and allocations. Whether a number fits the state of a row
is checked where that state is (`answers`, the engines).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from minedraft.errors import ProtocolError
from minedraft.plans import (
    MAX_BATCHES,
    MAX_CATCH_UP_TOKENS,
    MAX_DRAFT_TOKENS,
    MAX_ROWS,
    Score,
    StepTiming,
)
from minedraft.selection import MAX_SLOPE, NUM_CLASSES
from minedraft.validation import MAX_CACHE_SALT_BYTES, MAX_LOGPROBS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.plans import (
        DraftPlan,
        DraftResult,
        RowResult,
        StepBegun,
        VerifyPlan,
        VerifyResult,
    )
    from minedraft.selection import Curves
    from minedraft.types import RowParams, TokenLogprobs

MAX_TOKEN_ID: Final = 2**31 - 1
MAX_LEN: Final = 2**31 - 1
MAX_UNIX_NS: Final = 2**63 - 1
MAX_DURATION_NS: Final = 10**15
"""Eleven days."""
MAX_DRAFT_WAIT_NS: Final = 600 * 10**9
MAX_WARM_UP_ROWS: Final = MAX_BATCHES * MAX_ROWS
"""Most rows per plan; a warm-up plan has rows of all batches."""
MIN_LOGPROB: Final = -9999.0
_DURATIONS: Final = tuple(name for name in StepTiming.__slots__ if name != "started_unix_ns")


def check_counts(rows: Sequence[Any]) -> None:
    """Check the counts of an answer before it becomes objects.

    Args:
        rows: Messages `RowResult`.

    Raises:
        ProtocolError: names the field and the count.
    """
    _between("rows", len(rows), 0, MAX_ROWS, "of them")
    for row in rows:
        _between("token_ids", len(row.token_ids), 0, MAX_DRAFT_TOKENS + 1, "of them")
        _between("logprobs", len(row.logprobs), 0, MAX_DRAFT_TOKENS + 1, "of them")
        for entry in row.logprobs:
            _between("top", len(entry.top), 0, MAX_LOGPROBS, "of them")


def check_draft_counts(rows: Sequence[Any]) -> None:
    """Check the count of an answer before it becomes objects.

    Args:
        rows: Messages `DraftRowResult`.

    Raises:
        ProtocolError: names the field and the count.
    """
    _between("rows", len(rows), 0, MAX_WARM_UP_ROWS, "of them")
    for row in rows:
        _between("scores", len(row.scores), 0, MAX_DRAFT_TOKENS, "of them")


def check_verify_result(result: VerifyResult) -> None:
    """Check the numbers of a verifier's answer; `check_counts` bounds how many there are.

    Raises:
        ProtocolError: names the field and the value.
    """
    _between("batch", result.batch, 0, MAX_BATCHES - 1)
    _between("num_stale_drafts", result.num_stale_drafts, 0, MAX_ROWS)
    _check_timing(result.timing)
    for row in result.rows:
        _check_row_result(row)


def check_step_begun(begun: StepBegun) -> None:
    """Check the numbers of a note of a verifier; whether it is a step, `Core` knows.

    Raises:
        ProtocolError: names the field and the value.
    """
    _between("batch", begun.batch, 0, MAX_BATCHES - 1)


def check_draft_result(result: DraftResult) -> None:
    """Check the numbers of a drafter's answer; `check_draft_counts` bounds how many there are.

    Raises:
        ProtocolError: names the field and the value.
    """
    most = MAX_WARM_UP_ROWS
    _between("batch", result.batch, 0, MAX_BATCHES - 1)
    _between("num_rows", result.num_rows, 0, most)
    _between("num_broken", result.num_broken, 0, most)
    _between("num_draft_tokens", result.num_draft_tokens, 0, most * MAX_DRAFT_TOKENS)
    _between("num_catch_up_tokens", result.num_catch_up_tokens, 0, MAX_LEN)
    _between("num_ahead_tokens", result.num_ahead_tokens, 0, result.num_draft_tokens)
    _check_timing(result.timing)
    for row in result.rows:
        _between("base_len", row.base_len, 1, MAX_LEN)
        _between("judged_len", row.judged_len, 0, row.base_len)
        _between("num_resolved", row.num_resolved, 0, MAX_DRAFT_TOKENS)
        # The first that differs is judged too, and none after it.
        _between("num_matched", row.num_matched, max(row.num_resolved - 1, 0), row.num_resolved)
        for score in row.scores:
            _between("scores", score, 0.0, math.inf)


def check_verify_plan(plan: VerifyPlan) -> None:
    """Check a plan for a verifier.

    Raises:
        ProtocolError: names the field and the value.
    """
    _between("draft_timeout_ns", plan.draft_timeout_ns, 0, MAX_DRAFT_WAIT_NS)
    _check_plan(plan, MAX_ROWS)
    for row in plan.rows:
        _between("base_len", row.base_len, 1, MAX_LEN)
        _between("num_computed", row.num_computed, 0, MAX_LEN)
        _between("num_feed", row.num_feed, 1, MAX_LEN)
        _between("num_draft_tokens", row.num_draft_tokens, 0, MAX_DRAFT_TOKENS)
        _between("block_offset", row.block_offset, 0, MAX_LEN)
        _between("num_ngram_tokens", row.num_ngram_tokens, 0, MAX_DRAFT_TOKENS)
    if bool(plan.source) != any(row.num_draft_tokens for row in plan.rows):
        # Without one nothing can come; with one the step would wait for what nobody asked for.
        raise ProtocolError(f"source={plan.source}: want one if a row has drafts, else 0")
    if plan.selection is not None:
        _between("budget", plan.selection.budget, 0, MAX_ROWS * MAX_DRAFT_TOKENS)
        _between("floor", plan.selection.floor, 0, MAX_DRAFT_TOKENS)
        _check_curves(plan.selection.curves, plan.selection.offsets, len(plan.rows))


def check_draft_plan(plan: DraftPlan) -> None:
    """Check a plan for a drafter.

    Raises:
        ProtocolError: names the field and the value.
    """
    _check_plan(plan, MAX_WARM_UP_ROWS)
    _between("max_catch_up_tokens", plan.max_catch_up_tokens, 0, MAX_CATCH_UP_TOKENS)
    for opened in plan.opens:
        size = len(opened.cache_salt.encode())
        _between("cache_salt", size, 0, MAX_CACHE_SALT_BYTES, "bytes")
    for row in plan.rows:
        _between("base_len", row.base_len, 1, MAX_LEN)
        _between("num_draft_tokens", row.num_draft_tokens, 0, MAX_DRAFT_TOKENS)
    if plan.stop is not None:
        _between("below", plan.stop.below, 0.0, 1.0)
        _check_curves(plan.stop.curves, plan.stop.offsets, len(plan.rows))
        if plan.score is Score.NONE:
            raise ProtocolError("score=0: want one to stop by")


def check_vocabulary(plan: VerifyPlan | DraftPlan, vocab_size: int) -> None:
    """Check every token id of a row's history: an index beyond the vocabulary breaks a GPU.

    Raises:
        ProtocolError: names the field and the value.
    """
    for opened in plan.opens:
        _check_ids("prompt_token_ids", opened.prompt_token_ids, vocab_size)
        _check_ids("output_token_ids", opened.output_token_ids, vocab_size)
    for row in plan.rows:
        _check_ids("new_token_ids", row.new_token_ids, vocab_size)


def _check_ids(name: str, ids: tuple[int, ...], vocab_size: int) -> None:
    if ids:
        _between(name, max(ids), 0, vocab_size - 1)


def _check_plan(plan: VerifyPlan | DraftPlan, most_rows: int) -> None:
    _between("batch", plan.batch, 0, MAX_BATCHES - 1)
    _between("rows", len(plan.rows), 0, most_rows, "of them")
    _between("opens", len(plan.opens), 0, most_rows, "of them")
    for row in plan.opens:
        _check_params(row.params)
        if row.debug is not None and row.debug.synthetic_acceptance is not None:
            _between("debug.synthetic_acceptance", row.debug.synthetic_acceptance, 0.0, 1.0)


def _check_curves(curves: Curves, offsets: tuple[float, ...], num_rows: int) -> None:
    num_pairs = len(curves.slopes)
    _between("slopes", num_pairs, 0, NUM_CLASSES * MAX_DRAFT_TOKENS, "of them")
    if num_pairs % NUM_CLASSES or len(curves.biases) != num_pairs:
        raise ProtocolError(
            f"{num_pairs} slopes, {len(curves.biases)} biases: want as many, {NUM_CLASSES} each"
        )
    if len(offsets) not in {0, num_rows}:
        raise ProtocolError(f"offsets={len(offsets)} of them: want none or {num_rows}")
    values = {"slopes": curves.slopes, "biases": curves.biases, "offsets": offsets}
    for name, numbers in values.items():
        for number in numbers:
            _between(name, number, -MAX_SLOPE, MAX_SLOPE)


def _check_params(params: RowParams) -> None:
    """Not the ranges of `validation`, which are for callers: what sampling can compute with."""
    _between("temperature", params.temperature, 0.0, math.inf)
    _between("top_p", params.top_p, 0.0, 1.0)
    _between("min_p", params.min_p, 0.0, 1.0)
    if not 0 < params.repetition_penalty < math.inf:  # a NaN is in no range
        raise ProtocolError(f"repetition_penalty={params.repetition_penalty}: want more than 0")
    for name in ("presence_penalty", "frequency_penalty"):
        _finite(name, getattr(params, name))
    for bias in params.logit_bias.values():
        _finite("logit_bias", bias)
    if params.logprobs is not None:
        _between("logprobs", params.logprobs, 0, MAX_LOGPROBS)


def _check_row_result(row: RowResult) -> None:
    _between("base_len", row.base_len, 1, MAX_LEN)
    _between("num_draft_tokens", row.num_draft_tokens, 0, MAX_DRAFT_TOKENS)
    _between("num_accepted_tokens", row.num_accepted_tokens, 0, row.num_draft_tokens)
    if row.token_ids:
        _between("token_ids", max(row.token_ids), 0, MAX_TOKEN_ID)
    for entry in row.logprobs:
        _check_logprobs(entry)


def _check_logprobs(entry: TokenLogprobs) -> None:
    for token_id, logprob in ((entry.token_id, entry.logprob), *entry.top):
        _between("token_id", token_id, 0, MAX_TOKEN_ID)
        _between("logprob", logprob, MIN_LOGPROB, 0.0)


def _check_timing(timing: StepTiming) -> None:
    _between("started_unix_ns", timing.started_unix_ns, 0, MAX_UNIX_NS)
    for name in _DURATIONS:
        _between(name, getattr(timing, name), 0, MAX_DURATION_NS)


def _between(name: str, value: float, low: float, high: float, what: str = "") -> None:
    """Raise unless low <= value <= high; a NaN is in no range, and infinity in none."""
    if not low <= value <= high or value == math.inf:
        unit = f" {what}" if what else ""
        raise ProtocolError(f"{name}={value}{unit}: want {low}..{high}")


def _finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ProtocolError(f"{name}={value}: want a finite number")
