"""Plans and results <-> protobuf, both directions. Values only; decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import ProtocolError
from minedraft.plans import (
    DraftPlan,
    DraftRow,
    OpenRow,
    Score,
    StepTiming,
    Stop,
    VerifyPlan,
    VerifyRow,
    WorkerIdentity,
)
from minedraft.selection import NO_CURVES, Curves, Selection
from minedraft.transport import ranges, sampling_codec
from minedraft.types import MAX_EOS_IDS, ModelInfo, RowId, RowParams, TokenLogprobs
from minedraft.v1 import drafter_pb2, types_pb2, verifier_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

_SCORES = {
    Score.NONE: drafter_pb2.DRAFT_SCORE_UNSPECIFIED,
    Score.MARGIN: drafter_pb2.DRAFT_SCORE_MARGIN,
    Score.SURPRISAL: drafter_pb2.DRAFT_SCORE_SURPRISAL,
}
_SCORES_BACK = {number: score for score, number in _SCORES.items()}
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
            cache_salt=row.cache_salt,
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
            is_trial=plan.is_trial,
            max_catch_up_tokens=plan.max_catch_up_tokens,
            score=_SCORES[plan.score],
            stop=None if plan.stop is None else _stop_to_proto(plan.stop),
            may_run_ahead=plan.may_run_ahead,
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
    if plan.score not in _SCORES_BACK:
        raise ProtocolError(f"score={plan.score}: want 0..{max(Score)}")
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
                cache_salt=row.cache_salt,
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
        is_trial=plan.is_trial,
        max_catch_up_tokens=plan.max_catch_up_tokens,
        score=_SCORES_BACK[plan.score],
        stop=_stop_from_proto(plan.stop) if plan.HasField("stop") else None,
        may_run_ahead=plan.may_run_ahead,
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
            is_wide=plan.is_wide,
            selection=None if plan.selection is None else _selection_to_proto(plan.selection),
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
                num_ngram_tokens=row.num_ngram_tokens,
            )
            for row in plan.rows
        ),
        draft_timeout_ns=plan.draft_timeout_ns,
        is_wide=plan.is_wide,
        selection=(_selection_from_proto(plan.selection) if plan.HasField("selection") else None),
    )
    ranges.check_verify_plan(found)
    return found


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


def _stop_to_proto(stop: Stop) -> drafter_pb2.DraftStop:
    return drafter_pb2.DraftStop(
        below=stop.below, curves=_curves_to_proto(stop.curves), offsets=stop.offsets
    )


def _stop_from_proto(message: drafter_pb2.DraftStop) -> Stop:
    return Stop(message.below, _curves_from_proto(message), tuple(message.offsets))


def _selection_to_proto(selection: Selection) -> verifier_pb2.Selection:
    return verifier_pb2.Selection(
        budget=selection.budget,
        floor=selection.floor,
        curves=_curves_to_proto(selection.curves),
        offsets=selection.offsets,
    )


def _selection_from_proto(message: verifier_pb2.Selection) -> Selection:
    return Selection(
        message.budget, message.floor, _curves_from_proto(message), tuple(message.offsets)
    )


def _curves_to_proto(curves: Curves) -> types_pb2.SurvivalCurves | None:
    if not curves.slopes:
        return None
    return types_pb2.SurvivalCurves(slopes=curves.slopes, biases=curves.biases)


def _curves_from_proto(message: drafter_pb2.DraftStop | verifier_pb2.Selection) -> Curves:
    if not message.HasField("curves"):
        return NO_CURVES
    return Curves(tuple(message.curves.slopes), tuple(message.curves.biases))


def _row_ids(ids: Iterable[int]) -> tuple[RowId, ...]:
    return tuple(RowId(i) for i in ids)
