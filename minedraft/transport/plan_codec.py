"""Plans and results <-> protobuf, both directions. Values only; decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import ProtocolError
from minedraft.plans import (
    DraftPlan,
    DraftResult,
    DraftRow,
    LinkLost,
    OpenRow,
    RowResult,
    StepTiming,
    VerifyPlan,
    VerifyResult,
    VerifyRow,
    WorkerIdentity,
    WorkerUsage,
)
from minedraft.transport import ranges, sampling_codec, usage_codec
from minedraft.types import MAX_EOS_IDS, ModelInfo, RowError, RowId, RowParams, TokenLogprobs
from minedraft.v1 import drafter_pb2, types_pb2, verifier_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROW_ERRORS = {RowError.NON_FINITE: verifier_pb2.ROW_ERROR_NON_FINITE}
_ROW_ERRORS_BACK = {number: error for error, number in _ROW_ERRORS.items()}
_TIMING_FIELDS = tuple(StepTiming.__slots__)


def timing_to_proto(timing: StepTiming) -> types_pb2.StepTiming:
    """StepTiming -> message."""
    return types_pb2.StepTiming(**{name: getattr(timing, name) for name in _TIMING_FIELDS})


def timing_from_proto(message: types_pb2.StepTiming) -> StepTiming:
    """Message -> StepTiming."""
    return StepTiming(*(getattr(message, name) for name in _TIMING_FIELDS))


def identity_to_proto(identity: WorkerIdentity) -> types_pb2.WorkerIdentity:
    """WorkerIdentity -> message."""
    return types_pb2.WorkerIdentity(
        **{name: getattr(identity, name) for name in WorkerIdentity.__slots__}
    )


def identity_from_proto(message: types_pb2.WorkerIdentity) -> WorkerIdentity:
    """Message -> WorkerIdentity."""
    return WorkerIdentity(*(getattr(message, name) for name in WorkerIdentity.__slots__))


def model_info_to_proto(info: ModelInfo) -> types_pb2.ModelInfo:
    """ModelInfo -> message."""
    return types_pb2.ModelInfo(**{name: getattr(info, name) for name in ModelInfo.__slots__})


def model_info_from_proto(message: types_pb2.ModelInfo) -> ModelInfo:
    """Message -> ModelInfo; cuts a list of end tokens that is longer than any model's."""
    values = {name: getattr(message, name) for name in ModelInfo.__slots__}
    # One more than a coordinator takes: nothing has checked the message yet.
    return ModelInfo(**{**values, "eos_token_ids": tuple(message.eos_token_ids[: MAX_EOS_IDS + 1])})


def params_to_proto(params: RowParams) -> types_pb2.RowParams:
    """RowParams -> message."""
    return types_pb2.RowParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=dict(params.logit_bias),
        min_tokens=params.min_tokens,
        stop_ids=params.stop_ids,
        bad_words=[types_pb2.TokenIds(ids=ids) for ids in params.bad_words],
        allowed_token_ids=params.allowed_token_ids,
        seed=params.seed,
        logprobs=params.logprobs,
    )


def params_from_proto(message: types_pb2.RowParams) -> RowParams:
    """Message -> RowParams; unset optional fields mean "off"."""
    return RowParams(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p if message.HasField("top_p") else 1.0,
        min_p=message.min_p,
        repetition_penalty=(
            message.repetition_penalty if message.HasField("repetition_penalty") else 1.0
        ),
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=dict(message.logit_bias),
        min_tokens=message.min_tokens,
        stop_ids=tuple(message.stop_ids),
        bad_words=tuple(tuple(word.ids) for word in message.bad_words),
        allowed_token_ids=tuple(message.allowed_token_ids),
        seed=message.seed,
        logprobs=message.logprobs if message.HasField("logprobs") else None,
    )


def draft_plan_to_proto(plan: DraftPlan) -> drafter_pb2.DrafterSessionRequest:
    """DraftPlan -> session message."""
    opens = [
        drafter_pb2.DrafterOpenRow(
            row_id=row.row_id,
            token_ids=row.prompt_token_ids + row.output_token_ids,
            num_prompt_tokens=len(row.prompt_token_ids),
            params=params_to_proto(row.params),
            debug=None if row.debug is None else sampling_codec.debug_to_proto(row.debug),
        )
        for row in plan.opens
    ]
    rows = [
        drafter_pb2.DraftRow(
            row_id=row.row_id,
            base_len=row.base_len,
            new_token_ids=row.new_token_ids,
            num_draft_tokens=row.num_draft_tokens,
        )
        for row in plan.rows
    ]
    return drafter_pb2.DrafterSessionRequest(
        plan=drafter_pb2.DraftPlan(
            step_id=plan.step_id,
            batch=plan.batch,
            epoch=plan.epoch,
            opens=opens,
            close_row_ids=plan.closes,
            rows=rows,
        )
    )


def draft_plan_from_proto(request: drafter_pb2.DrafterSessionRequest) -> DraftPlan:
    """Session message -> DraftPlan.

    Raises:
        ProtocolError: a message kind this version does not know, or a number out of range.
    """
    if request.WhichOneof("message") != "plan":
        raise ProtocolError("drafter session: message without a plan")
    plan = request.plan
    found = DraftPlan(
        step_id=plan.step_id,
        batch=plan.batch,
        epoch=plan.epoch,
        opens=tuple(
            OpenRow(
                row_id=RowId(row.row_id),
                prompt_token_ids=tuple(row.token_ids[: row.num_prompt_tokens]),
                output_token_ids=tuple(row.token_ids[row.num_prompt_tokens :]),
                params=params_from_proto(row.params),
                debug=(
                    sampling_codec.debug_from_proto(row.debug) if row.HasField("debug") else None
                ),
            )
            for row in plan.opens
        ),
        closes=_row_ids(plan.close_row_ids),
        rows=tuple(
            DraftRow(
                RowId(row.row_id), row.base_len, tuple(row.new_token_ids), row.num_draft_tokens
            )
            for row in plan.rows
        ),
    )
    ranges.check_draft_plan(found)
    return found


def verify_plan_to_proto(plan: VerifyPlan) -> verifier_pb2.VerifierSessionRequest:
    """VerifyPlan -> session message."""
    opens = [
        verifier_pb2.VerifierOpenRow(
            row_id=row.row_id,
            prompt_token_ids=row.prompt_token_ids,
            output_token_ids=row.output_token_ids,
            params=params_to_proto(row.params),
        )
        for row in plan.opens
    ]
    rows = [verifier_pb2.VerifyRow(**row._asdict()) for row in plan.rows]
    return verifier_pb2.VerifierSessionRequest(
        plan=verifier_pb2.VerifyPlan(
            step_id=plan.step_id,
            batch=plan.batch,
            source=plan.source,
            opens=opens,
            close_row_ids=plan.closes,
            rows=rows,
            draft_timeout_ns=plan.draft_timeout_ns,
        )
    )


def verify_plan_from_proto(request: verifier_pb2.VerifierSessionRequest) -> VerifyPlan:
    """Session message -> VerifyPlan.

    Raises:
        ProtocolError: a message kind this version does not know, or a number out of range.
    """
    if request.WhichOneof("message") != "plan":
        raise ProtocolError("verifier session: message without a plan")
    plan = request.plan
    found = VerifyPlan(
        step_id=plan.step_id,
        batch=plan.batch,
        source=plan.source,
        opens=tuple(
            OpenRow(
                row_id=RowId(row.row_id),
                prompt_token_ids=tuple(row.prompt_token_ids),
                output_token_ids=tuple(row.output_token_ids),
                params=params_from_proto(row.params),
            )
            for row in plan.opens
        ),
        closes=_row_ids(plan.close_row_ids),
        rows=tuple(
            VerifyRow(
                row_id=RowId(row.row_id),
                base_len=row.base_len,
                new_token_ids=tuple(row.new_token_ids),
                num_computed=row.num_computed,
                num_feed=row.num_feed,
                num_draft_tokens=row.num_draft_tokens,
                new_block_ids=tuple(row.new_block_ids),
                block_offset=row.block_offset,
            )
            for row in plan.rows
        ),
        draft_timeout_ns=plan.draft_timeout_ns,
    )
    ranges.check_verify_plan(found)
    return found


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


def draft_result_to_proto(result: DraftResult) -> drafter_pb2.DrafterSessionResponse:
    """DraftResult -> session message."""
    return drafter_pb2.DrafterSessionResponse(
        result=drafter_pb2.DraftResult(
            step_id=result.step_id,
            batch=result.batch,
            num_draft_tokens=result.num_draft_tokens,
            num_rows=result.num_rows,
            timing=timing_to_proto(result.timing),
            num_behind=result.num_behind,
            epoch=result.epoch,
            num_broken=result.num_broken,
        )
    )


def verify_answer_from_proto(
    response: verifier_pb2.VerifierSessionResponse,
) -> VerifyResult | LinkLost:
    """Session message -> result or link loss.

    Raises:
        ProtocolError: a message kind this version does not know, or a number out of range.
    """
    match response.WhichOneof("message"):
        case "result":
            result = response.result
            ranges.check_counts(result.rows)
            verified = VerifyResult(
                step_id=result.step_id,
                batch=result.batch,
                rows=tuple(_row_result(row) for row in result.rows),
                timing=timing_from_proto(result.timing),
                num_stale_drafts=result.num_stale_drafts,
            )
            ranges.check_verify_result(verified)
            return verified
        case "link_lost":
            return LinkLost(response.link_lost.epoch, response.link_lost.reason)
        case other:
            raise ProtocolError(f"verifier session: unknown answer {other!r}")


def draft_answer_from_proto(
    response: drafter_pb2.DrafterSessionResponse,
) -> DraftResult | LinkLost | WorkerUsage:
    """Session message -> result or link loss.

    Raises:
        ProtocolError: a message kind this version does not know, or a number out of range.
    """
    match response.WhichOneof("message"):
        case "result":
            result = response.result
            drafted = DraftResult(
                step_id=result.step_id,
                batch=result.batch,
                num_draft_tokens=result.num_draft_tokens,
                num_rows=result.num_rows,
                timing=timing_from_proto(result.timing),
                epoch=result.epoch,
                num_behind=result.num_behind,
                num_broken=result.num_broken,
            )
            ranges.check_draft_result(drafted)
            return drafted
        case "link_lost":
            return LinkLost(response.link_lost.epoch, response.link_lost.reason)
        case "usage":
            return usage_codec.usage_from_proto(response.usage)
        case other:
            raise ProtocolError(f"drafter session: unknown answer {other!r}")


def link_lost_to_verifier_answer(lost: LinkLost) -> verifier_pb2.VerifierSessionResponse:
    """LinkLost -> the verifier's session message."""
    return verifier_pb2.VerifierSessionResponse(link_lost=_link_lost(lost))


def link_lost_to_drafter_answer(lost: LinkLost) -> drafter_pb2.DrafterSessionResponse:
    """LinkLost -> the drafter's session message."""
    return drafter_pb2.DrafterSessionResponse(link_lost=_link_lost(lost))


def logprobs_to_proto(entry: TokenLogprobs) -> types_pb2.PositionLogprobs:
    """TokenLogprobs -> message."""
    return types_pb2.PositionLogprobs(
        token=types_pb2.TokenLogprob(token_id=entry.token_id, logprob=entry.logprob),
        top=[types_pb2.TokenLogprob(token_id=i, logprob=value) for i, value in entry.top],
    )


def logprobs_from_proto(message: types_pb2.PositionLogprobs) -> TokenLogprobs:
    """Message -> TokenLogprobs."""
    return TokenLogprobs(
        token_id=message.token.token_id,
        logprob=message.token.logprob,
        top=tuple((entry.token_id, entry.logprob) for entry in message.top),
    )


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
    )


def _row_ids(ids: Iterable[int]) -> tuple[RowId, ...]:
    return tuple(RowId(i) for i in ids)


def _link_lost(lost: LinkLost) -> types_pb2.LinkLost:
    return types_pb2.LinkLost(epoch=lost.epoch, reason=lost.reason)
