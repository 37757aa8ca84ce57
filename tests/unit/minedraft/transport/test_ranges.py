"""Every number of every message of a session at its extremes, found by walking the messages.

A field that is added without a range fails here.
"""

from __future__ import annotations

import math

import pytest
from google.protobuf.descriptor import FieldDescriptor

from minedraft.errors import ProtocolError
from minedraft.plans import DraftPlan, DraftRow, OpenRow, VerifyPlan, VerifyRow
from minedraft.transport import answer_codec, plan_codec, ranges
from minedraft.types import MAX_EOS_IDS, RowId, RowParams
from minedraft.v1 import drafter_pb2, types_pb2, verifier_pb2

TIMING = types_pb2.StepTiming(started_unix_ns=1, total_ns=1)
CURVES = types_pb2.SurvivalCurves(slopes=[1.0] * 3, biases=[0.0] * 3)
LOGPROB = types_pb2.TokenLogprob(token_id=1, logprob=-1.0)
PARAMS = types_pb2.RowParams(
    temperature=1.0,
    top_p=0.5,
    repetition_penalty=1.1,
    logit_bias={3: 1.0},
    bad_words=[types_pb2.TokenIds(ids=[1])],
    logprobs=2,
)
MESSAGES = {
    "verify result": (
        answer_codec.verify_answer_from_proto,
        verifier_pb2.VerifierSessionResponse(
            result=verifier_pb2.VerifyResult(
                step_id=1,
                rows=[
                    verifier_pb2.RowResult(
                        row_id=1,
                        base_len=3,
                        token_ids=[1],
                        num_draft_tokens=1,
                        logprobs=[types_pb2.PositionLogprobs(token=LOGPROB, top=[LOGPROB])],
                    )
                ],
                timing=TIMING,
            )
        ),
    ),
    "step begun": (
        answer_codec.verify_answer_from_proto,
        verifier_pb2.VerifierSessionResponse(begun=verifier_pb2.StepBegun(step_id=1)),
    ),
    "draft result": (
        answer_codec.draft_answer_from_proto,
        drafter_pb2.DrafterSessionResponse(
            result=drafter_pb2.DraftResult(
                step_id=1,
                num_rows=1,
                timing=TIMING,
                rows=[drafter_pb2.DraftRowResult(row_id=1, base_len=3)],
            )
        ),
    ),
    "verify plan": (
        plan_codec.verify_plan_from_proto,
        verifier_pb2.VerifierSessionRequest(
            plan=verifier_pb2.VerifyPlan(
                step_id=1,
                opens=[verifier_pb2.VerifierOpenRow(row_id=1, params=PARAMS)],
                close_row_ids=[1],
                rows=[verifier_pb2.VerifyRow(row_id=1, base_len=1, num_feed=1)],
                selection=verifier_pb2.Selection(budget=1, curves=CURVES),
            )
        ),
    ),
    "draft plan": (
        plan_codec.draft_plan_from_proto,
        drafter_pb2.DrafterSessionRequest(
            plan=drafter_pb2.DraftPlan(
                step_id=1,
                opens=[
                    drafter_pb2.DrafterOpenRow(
                        row_id=1,
                        params=PARAMS,
                        debug=types_pb2.DebugOptions(synthetic_acceptance=0.5),
                    )
                ],
                close_row_ids=[1],
                rows=[drafter_pb2.DraftRow(row_id=1, base_len=1)],
                stop=drafter_pb2.DraftStop(below=0.5, curves=CURVES, offsets=[0.0]),
                score=drafter_pb2.DRAFT_SCORE_MARGIN,
            )
        ),
    ),
}
ANY = {
    "epoch", "row_id", "close_row_ids", "seed",  # names: looked up, and unknown ones are told
    "step_id",  # `Planner.check_planned`
    "prompt_token_ids", "output_token_ids", "new_token_ids",  # `check_vocabulary`
    "reference_token_ids", "stop_ids", "allowed_token_ids", "ids", "key",  # others are ignored
    "new_block_ids",  # the engine knows its pool
    "top_k", "min_tokens", "num_prompt_tokens",  # bounds: a large one is none
}  # fmt: skip
"""Fields that may have any value; why."""
LARGEST = {
    FieldDescriptor.TYPE_UINT32: (2**32 - 1,),
    FieldDescriptor.TYPE_UINT64: (2**64 - 1,),
    FieldDescriptor.TYPE_FIXED64: (2**64 - 1,),
    FieldDescriptor.TYPE_FLOAT: (math.nan, math.inf, -math.inf),
}


def numbers(message, path=()):
    """Every number that a message has or can have: the message it is in, its field, its path."""
    for field in message.DESCRIPTOR.fields:
        where = (*path, field.name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            inner = getattr(message, field.name)
            if field.message_type.GetOptions().map_entry:
                yield message, field, where
            elif field.is_repeated:
                for part in inner:
                    yield from numbers(part, where)
            elif message.HasField(field.name):
                yield from numbers(inner, where)
        elif field.type in LARGEST:
            yield message, field, where


def cases():
    for name, (decode, message) in MESSAGES.items():
        paths = {where for _, _, where in numbers(message)}
        for where in sorted(paths):
            if where[-1] not in ANY and where != (
                "plan",
                "opens",
                "token_ids",
            ):  # prompt and output
                yield pytest.param(decode, message, where, id=f"{name}: {'.'.join(where)}")


def put(message, where, value) -> None:
    for owner, field, path in numbers(message):
        if path != where:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(owner, field.name)[7] = value
        elif field.is_repeated:
            values = getattr(owner, field.name)
            values[:] = [value, *values[1:]]
        else:
            setattr(owner, field.name, value)
        return


def extremes(message, where):
    (field,) = {f.full_name: f for _, f, path in numbers(message) if path == where}.values()
    is_map = field.type == FieldDescriptor.TYPE_MESSAGE
    return LARGEST[FieldDescriptor.TYPE_FLOAT if is_map else field.type]


@pytest.mark.parametrize(("decode", "message", "where"), list(cases()))
def test_a_number_beyond_its_range_is_refused_by_name_and_value(decode, message, where):
    decode(message)  # as it is, it is fine
    for value in extremes(message, where):
        spoiled = type(message).FromString(message.SerializeToString())
        put(spoiled, where, value)
        with pytest.raises(ProtocolError, match=where[-1]) as caught:
            decode(spoiled)
        assert str(value) in str(caught.value)


@pytest.mark.parametrize(
    ("decode", "message", "where"),
    [
        pytest.param(*MESSAGES["verify plan"], ("plan", "rows", "base_len"), id="base_len"),
        pytest.param(*MESSAGES["verify plan"], ("plan", "rows", "num_feed"), id="num_feed"),
        pytest.param(*MESSAGES["draft plan"], ("plan", "rows", "base_len"), id="draft base_len"),
        pytest.param(
            *MESSAGES["verify plan"],
            ("plan", "opens", "params", "repetition_penalty"),
            id="rate",
        ),
        pytest.param(*MESSAGES["verify result"], ("result", "rows", "base_len"), id="answer"),
        pytest.param(*MESSAGES["draft result"], ("result", "rows", "base_len"), id="draft answer"),
    ],
)
def test_zero_is_refused_where_there_is_nothing_to_do_with_it(decode, message, where):
    spoiled = type(message).FromString(message.SerializeToString())
    put(spoiled, where, 0)
    with pytest.raises(ProtocolError, match=f"{where[-1]}=0"):
        decode(spoiled)


@pytest.mark.parametrize("value", [-0.001, -1e30])
def test_what_is_negative_is_refused_where_only_more_makes_sense(value):
    decode, message = MESSAGES["verify plan"]
    spoiled = type(message).FromString(message.SerializeToString())
    put(spoiled, ("plan", "opens", "params", "temperature"), value)
    with pytest.raises(ProtocolError, match="temperature="):
        decode(spoiled)


@pytest.mark.parametrize(
    ("grow", "want"),
    [
        (lambda rows: rows.extend([rows[0]] * 1024), "rows=1025 of them"),
        (lambda rows: rows[0].token_ids.extend([1] * 10**6), "token_ids=1000001 of them"),
        (lambda rows: rows[0].logprobs.extend([rows[0].logprobs[0]] * 99), "logprobs=100 of them"),
        (lambda rows: rows[0].logprobs[0].top.extend([LOGPROB] * 99), "top=100 of them"),
    ],
)
def test_more_of_an_answer_than_a_step_can_have_is_refused(grow, want, monkeypatch):
    decode, message = MESSAGES["verify result"]
    many = type(message).FromString(message.SerializeToString())
    grow(many.result.rows)
    monkeypatch.setattr(answer_codec, "RowResult", None)  # nothing is made of it
    with pytest.raises(ProtocolError, match=want):
        decode(many)


def test_end_tokens_beyond_what_any_model_has_are_not_made_objects_of():
    message = types_pb2.ModelInfo(vocab_size=9, eos_token_ids=[1] * 10**6)
    assert len(plan_codec.model_info_from_proto(message).eos_token_ids) == MAX_EOS_IDS + 1


@pytest.mark.parametrize("token_id", [50, 2**32 - 1])
@pytest.mark.parametrize("field", ["prompt_token_ids", "output_token_ids", "new_token_ids"])
def test_a_history_with_an_id_that_is_no_token_is_refused(field, token_id):
    opened = {"prompt_token_ids": (1,), "output_token_ids": (2,)}
    row = {"new_token_ids": (3,)}
    ranges.check_vocabulary(verify_plan(opened, row), 50)
    (opened if field in opened else row)[field] = (1, token_id, 2)
    for plan in (verify_plan(opened, row), draft_plan(opened, row)):
        with pytest.raises(ProtocolError, match=f"{field}={token_id}: want 0..49"):
            ranges.check_vocabulary(plan, 50)


def verify_plan(opened, row) -> VerifyPlan:
    rows = (VerifyRow(RowId(1), 3, row["new_token_ids"], 0, 1, 0, (), 0),)
    return VerifyPlan(1, 0, 0, rows=rows, opens=(OpenRow(RowId(1), params=RowParams(), **opened),))


def draft_plan(opened, row) -> DraftPlan:
    rows = (DraftRow(RowId(1), 3, row["new_token_ids"], 1),)
    return DraftPlan(1, 0, 1, rows=rows, opens=(OpenRow(RowId(1), params=RowParams(), **opened),))


@pytest.mark.parametrize(
    ("curves", "offsets", "want"),
    [
        (types_pb2.SurvivalCurves(slopes=[1.0] * 3), [], "3 slopes, 0 biases"),
        (types_pb2.SurvivalCurves(slopes=[1.0] * 4, biases=[0.0] * 4), [], "4 slopes"),
        (types_pb2.SurvivalCurves(slopes=[1.0] * 99, biases=[0.0] * 99), [], "slopes=99 of them"),
        (CURVES, [0.0, 0.0], "offsets=2 of them: want none or 1"),
    ],
)
def test_curves_have_a_pair_for_each_class_and_rows_an_offset(curves, offsets, want):
    selection = verifier_pb2.Selection(budget=1, curves=curves, offsets=offsets)
    row = verifier_pb2.VerifyRow(row_id=1, base_len=1, num_feed=1)
    verify = verifier_pb2.VerifyPlan(step_id=1, rows=[row], selection=selection)
    with pytest.raises(ProtocolError, match=want):
        plan_codec.verify_plan_from_proto(verifier_pb2.VerifierSessionRequest(plan=verify))
    stop = drafter_pb2.DraftStop(curves=curves, offsets=offsets)
    rows = [drafter_pb2.DraftRow(row_id=1, base_len=1)]
    draft = drafter_pb2.DraftPlan(step_id=1, rows=rows, stop=stop)
    with pytest.raises(ProtocolError, match=want):
        plan_codec.draft_plan_from_proto(drafter_pb2.DrafterSessionRequest(plan=draft))


def test_a_stop_rule_has_a_score_to_go_by():
    plan = drafter_pb2.DraftPlan(step_id=1, stop=drafter_pb2.DraftStop(below=0.5))
    with pytest.raises(ProtocolError, match="score=0: want one to stop by"):
        plan_codec.draft_plan_from_proto(drafter_pb2.DrafterSessionRequest(plan=plan))


@pytest.mark.parametrize(("matched", "resolved"), [(3, 2), (0, 2), (33, 33)])
def test_a_row_differs_once_from_what_was_committed(matched, resolved):
    row = drafter_pb2.DraftRowResult(
        row_id=1, base_len=3, num_matched=matched, num_resolved=resolved
    )
    result = drafter_pb2.DraftResult(step_id=1, rows=[row])
    with pytest.raises(ProtocolError, match=r"num_(matched|resolved)="):
        answer_codec.draft_answer_from_proto(drafter_pb2.DrafterSessionResponse(result=result))


@pytest.mark.parametrize(("source", "k"), [(0, 4), (5, 0)])
def test_a_step_names_a_source_if_and_only_if_it_has_drafts(source, k):
    row = verifier_pb2.VerifyRow(row_id=1, base_len=1, num_feed=1, num_draft_tokens=k)
    plan = verifier_pb2.VerifyPlan(step_id=1, source=source, rows=[row])
    with pytest.raises(ProtocolError, match=f"source={source}: want one if a row has drafts"):
        plan_codec.verify_plan_from_proto(verifier_pb2.VerifierSessionRequest(plan=plan))
