"""Answers of workers <-> protobuf, both directions. Values only; decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from minedraft.errors import ProtocolError
from minedraft.plans import (
    DraftResult,
    DraftRowResult,
    LinkLost,
    RowResult,
    StepBegun,
    VerifyResult,
    WorkerUsage,
)
from minedraft.transport import ranges, usage_codec
from minedraft.transport.plan_codec import (
    logprobs_from_proto,
    logprobs_to_proto,
    timing_from_proto,
    timing_to_proto,
)
from minedraft.types import RowError, RowId
from minedraft.v1 import drafter_pb2, types_pb2, verifier_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Answer = TypeVar("Answer")

_ROW_ERRORS = {RowError.NON_FINITE: verifier_pb2.ROW_ERROR_NON_FINITE}
_ROW_ERRORS_BACK = {number: error for error, number in _ROW_ERRORS.items()}


def verify_result_to_proto(result: VerifyResult) -> verifier_pb2.VerifierSessionResponse:
    """VerifyResult -> session message."""
    rows = [
        verifier_pb2.RowResult(
            row_id=row.row_id,
            base_len=row.base_len,
            token_ids=row.token_ids,
            num_draft_tokens=row.num_draft_tokens,
            num_accepted_tokens=row.num_accepted_tokens,
            logprobs=[logprobs_to_proto(entry) for entry in row.logprobs],
            error=None if row.error is None else _ROW_ERRORS[row.error],
            is_ngram=row.is_ngram,
        )
        for row in result.rows
    ]
    return verifier_pb2.VerifierSessionResponse(
        result=verifier_pb2.VerifyResult(
            step_id=result.step_id,
            batch=result.batch,
            rows=rows,
            timing=timing_to_proto(result.timing),
            num_stale_drafts=result.num_stale_drafts,
        )
    )


def step_begun_to_proto(begun: StepBegun) -> verifier_pb2.VerifierSessionResponse:
    """StepBegun -> session message."""
    return verifier_pb2.VerifierSessionResponse(
        begun=verifier_pb2.StepBegun(step_id=begun.step_id, batch=begun.batch)
    )


def draft_result_to_proto(result: DraftResult) -> drafter_pb2.DrafterSessionResponse:
    """DraftResult -> session message."""
    return drafter_pb2.DrafterSessionResponse(
        result=drafter_pb2.DraftResult(
            step_id=result.step_id,
            batch=result.batch,
            num_draft_tokens=result.num_draft_tokens,
            num_rows=result.num_rows,
            timing=timing_to_proto(result.timing),
            epoch=result.epoch,
            num_broken=result.num_broken,
            rows=[drafter_pb2.DraftRowResult(**row._asdict()) for row in result.rows],
            num_catch_up_tokens=result.num_catch_up_tokens,
            num_ahead_tokens=result.num_ahead_tokens,
        )
    )


def verify_answer_from_proto(
    response: verifier_pb2.VerifierSessionResponse,
) -> VerifyResult | StepBegun | LinkLost:
    """Session message -> result, step that began, or link loss.

    Raises:
        ProtocolError: a message kind this version does not know, or a number out of range.
    """
    return _answer(response, "verifier", _VERIFIER_ANSWERS)


def draft_answer_from_proto(
    response: drafter_pb2.DrafterSessionResponse,
) -> DraftResult | LinkLost | WorkerUsage:
    """Session message -> result, link loss, or usage.

    Raises:
        ProtocolError: a message kind this version does not know, or a number out of range.
    """
    return _answer(response, "drafter", _DRAFTER_ANSWERS)


def link_lost_to_verifier_answer(lost: LinkLost) -> verifier_pb2.VerifierSessionResponse:
    """LinkLost -> the verifier's session message."""
    return verifier_pb2.VerifierSessionResponse(link_lost=_link_lost(lost))


def link_lost_to_drafter_answer(lost: LinkLost) -> drafter_pb2.DrafterSessionResponse:
    """LinkLost -> the drafter's session message."""
    return drafter_pb2.DrafterSessionResponse(link_lost=_link_lost(lost))


def _answer(
    response: verifier_pb2.VerifierSessionResponse | drafter_pb2.DrafterSessionResponse,
    role: str,
    decoders: Mapping[str, Callable[[Any], Answer]],
) -> Answer:
    kind = response.WhichOneof("message")
    if kind not in decoders:
        raise ProtocolError(f"{role} session: unknown answer {kind!r}")
    return decoders[kind](getattr(response, kind))


def _verify_result(message: verifier_pb2.VerifyResult) -> VerifyResult:
    ranges.check_counts(message.rows)
    result = VerifyResult(
        step_id=message.step_id,
        batch=message.batch,
        rows=tuple(_row_result(row) for row in message.rows),
        timing=timing_from_proto(message.timing),
        num_stale_drafts=message.num_stale_drafts,
    )
    ranges.check_verify_result(result)
    return result


def _step_begun(message: verifier_pb2.StepBegun) -> StepBegun:
    begun = StepBegun(message.step_id, message.batch)
    ranges.check_step_begun(begun)
    return begun


def _draft_result(message: drafter_pb2.DraftResult) -> DraftResult:
    ranges.check_draft_counts(message.rows)
    result = DraftResult(
        step_id=message.step_id,
        batch=message.batch,
        num_draft_tokens=message.num_draft_tokens,
        num_rows=message.num_rows,
        timing=timing_from_proto(message.timing),
        epoch=message.epoch,
        num_broken=message.num_broken,
        rows=tuple(
            DraftRowResult(
                RowId(row.row_id),
                row.base_len,
                row.is_behind,
                tuple(row.scores),
                row.judged_len,
                row.num_matched,
                row.num_resolved,
            )
            for row in message.rows
        ),
        num_catch_up_tokens=message.num_catch_up_tokens,
        num_ahead_tokens=message.num_ahead_tokens,
    )
    ranges.check_draft_result(result)
    return result


def _link_lost_from(message: types_pb2.LinkLost) -> LinkLost:
    return LinkLost(message.epoch, message.reason)


def _row_result(row: verifier_pb2.RowResult) -> RowResult:
    if row.error and row.error not in _ROW_ERRORS_BACK:
        raise ProtocolError(f"row {row.row_id}: unknown error {row.error}")
    return RowResult(
        row_id=RowId(row.row_id),
        base_len=row.base_len,
        token_ids=tuple(row.token_ids),
        num_draft_tokens=row.num_draft_tokens,
        num_accepted_tokens=row.num_accepted_tokens,
        logprobs=tuple(logprobs_from_proto(entry) for entry in row.logprobs),
        error=_ROW_ERRORS_BACK.get(row.error),
        is_ngram=row.is_ngram,
    )


def _link_lost(lost: LinkLost) -> types_pb2.LinkLost:
    return types_pb2.LinkLost(epoch=lost.epoch, reason=lost.reason)


_VERIFIER_ANSWERS: Final[Mapping[str, Callable[[Any], VerifyResult | StepBegun | LinkLost]]] = {
    "result": _verify_result,
    "begun": _step_begun,
    "link_lost": _link_lost_from,
}
_DRAFTER_ANSWERS: Final[Mapping[str, Callable[[Any], DraftResult | LinkLost | WorkerUsage]]] = {
    "result": _draft_result,
    "link_lost": _link_lost_from,
    "usage": usage_codec.usage_from_proto,
}
