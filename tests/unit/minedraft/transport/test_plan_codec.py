from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import ProtocolError
from minedraft.plans import (
    MAX_BATCHES,
    MAX_CATCH_UP_TOKENS,
    MAX_DRAFT_TOKENS,
    MAX_ROWS,
    DraftPlan,
    DraftResult,
    DraftRow,
    DraftRowResult,
    LinkLost,
    OpenRow,
    RowResult,
    Score,
    StepBegun,
    StepTiming,
    Stop,
    VerifyPlan,
    VerifyResult,
    VerifyRow,
    WorkerIdentity,
)
from minedraft.selection import MAX_SLOPE, NO_CURVES, NUM_CLASSES, Curves, Selection
from minedraft.transport import answer_codec, plan_codec, ranges
from minedraft.types import DebugOptions, ModelInfo, RowError, RowId, RowParams, TokenLogprobs
from minedraft.v1 import drafter_pb2, types_pb2, verifier_pb2

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
FLOAT = st.floats(width=32, allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(2**-126, 2**126, width=32)
SHARE = st.floats(0, 1, width=32)
BATCH = st.integers(0, MAX_BATCHES - 1)
ROWS = st.integers(0, MAX_ROWS)
K = st.integers(0, MAX_DRAFT_TOKENS)
LENGTH = st.integers(1, ranges.MAX_LEN)
DURATION = st.integers(0, ranges.MAX_DURATION_NS)
IDS = st.lists(U32, max_size=5).map(tuple)
ROW_IDS = U64.map(RowId)
TEXT = st.text(max_size=8)

PARAMS = st.builds(
    RowParams,
    temperature=POSITIVE,
    top_k=U32,
    top_p=SHARE,
    min_p=SHARE,
    repetition_penalty=POSITIVE,
    presence_penalty=FLOAT,
    frequency_penalty=FLOAT,
    logit_bias=st.dictionaries(U32, FLOAT, max_size=3),
    min_tokens=U32,
    stop_ids=IDS,
    bad_words=st.lists(IDS, max_size=3).map(tuple),
    allowed_token_ids=IDS,
    seed=U64,
    logprobs=st.none() | st.integers(0, ranges.MAX_LOGPROBS),
)
TIMING = st.builds(
    StepTiming,
    **{
        **dict.fromkeys(StepTiming.__slots__, DURATION),
        "started_unix_ns": st.integers(0, ranges.MAX_UNIX_NS),
    },
)


def opens(**of_the_drafter):
    return st.lists(
        st.builds(
            OpenRow,
            row_id=ROW_IDS,
            prompt_token_ids=IDS,
            output_token_ids=IDS,
            params=PARAMS,
            **of_the_drafter,
        ),
        max_size=3,
    ).map(tuple)


SLOPE = st.floats(-MAX_SLOPE, MAX_SLOPE, width=32)
SLOPES = st.lists(SLOPE, min_size=NUM_CLASSES, max_size=NUM_CLASSES).map(tuple)
CURVES = st.just(NO_CURVES) | st.builds(Curves, slopes=SLOPES, biases=SLOPES)
DRAFT_PLANS = st.builds(
    DraftPlan,
    step_id=U64,
    batch=BATCH,
    epoch=U64,
    rows=st.lists(
        st.builds(DraftRow, row_id=ROW_IDS, base_len=LENGTH, new_token_ids=IDS, num_draft_tokens=K),
        max_size=3,
    ).map(tuple),
    opens=opens(
        debug=st.none()
        | st.builds(DebugOptions, reference_token_ids=IDS, synthetic_acceptance=st.none() | SHARE)
    ),
    closes=st.lists(ROW_IDS, max_size=3).map(tuple),
    is_trial=st.booleans(),
    max_catch_up_tokens=st.integers(0, MAX_CATCH_UP_TOKENS),
    score=st.sampled_from(Score),
    stop=st.none() | st.builds(Stop, below=SHARE, curves=CURVES),
    may_run_ahead=st.booleans(),
).filter(lambda plan: plan.stop is None or plan.score is not Score.NONE)
VERIFY_PLANS = st.builds(
    VerifyPlan,
    is_wide=st.booleans(),
    step_id=U64,
    batch=BATCH,
    source=U64,
    rows=st.lists(
        st.builds(
            VerifyRow,
            row_id=ROW_IDS,
            base_len=LENGTH,
            new_token_ids=IDS,
            num_computed=LENGTH,
            num_feed=LENGTH,
            num_draft_tokens=K,
            new_block_ids=IDS,
            block_offset=LENGTH,
            num_ngram_tokens=K,
        ),
        max_size=3,
    ).map(tuple),
    opens=opens(),
    closes=st.lists(ROW_IDS, max_size=3).map(tuple),
    draft_timeout_ns=st.integers(0, ranges.MAX_DRAFT_WAIT_NS),
    selection=st.none()
    | st.builds(
        Selection,
        budget=st.integers(0, MAX_ROWS * MAX_DRAFT_TOKENS),
        floor=K,
        curves=CURVES,
    ),
).filter(lambda plan: bool(plan.source) == any(row.num_draft_tokens for row in plan.rows))
TOKEN = st.integers(0, ranges.MAX_TOKEN_ID)
LOGPROB = st.floats(ranges.MIN_LOGPROB, 0, width=32)
LOGPROBS = st.builds(
    TokenLogprobs,
    token_id=TOKEN,
    logprob=LOGPROB,
    top=st.lists(st.tuples(TOKEN, LOGPROB), max_size=3).map(tuple),
)
VERIFY_RESULTS = st.builds(
    VerifyResult,
    step_id=U64,
    batch=BATCH,
    rows=st.lists(
        st.builds(
            RowResult,
            row_id=ROW_IDS,
            base_len=LENGTH,
            token_ids=st.lists(TOKEN, max_size=5).map(tuple),
            num_draft_tokens=st.just(MAX_DRAFT_TOKENS),
            num_accepted_tokens=K,
            logprobs=st.lists(LOGPROBS, max_size=2).map(tuple),
            error=st.sampled_from([None, *RowError]),
        ),
        max_size=3,
    ).map(tuple),
    timing=TIMING,
    num_stale_drafts=ROWS,
)
DRAFT_RESULTS = st.builds(
    DraftResult,
    step_id=U64,
    batch=BATCH,
    num_draft_tokens=ROWS,
    num_rows=ROWS,
    timing=TIMING,
    num_broken=ROWS,
    num_catch_up_tokens=LENGTH,
    num_ahead_tokens=st.just(0),
    rows=st.lists(
        st.builds(
            DraftRowResult,
            row_id=ROW_IDS,
            base_len=LENGTH,
            is_behind=st.booleans(),
            scores=st.lists(POSITIVE, max_size=5).map(tuple),
            judged_len=st.just(1),
            num_matched=st.just(2),
            num_resolved=st.integers(2, 3),
        ),
        max_size=3,
    ).map(tuple),
)


def wire(message):
    """What the peer reads."""
    return type(message).FromString(message.SerializeToString())


@settings(max_examples=50)
@given(PARAMS)
def test_params_survive_the_wire(params):
    assert plan_codec.params_from_proto(wire(plan_codec.params_to_proto(params))) == params


@settings(max_examples=50)
@given(DRAFT_PLANS)
def test_draft_plans_survive_the_wire(plan):
    assert plan_codec.draft_plan_from_proto(wire(plan_codec.draft_plan_to_proto(plan))) == plan


@settings(max_examples=50)
@given(VERIFY_PLANS)
def test_verify_plans_survive_the_wire(plan):
    assert plan_codec.verify_plan_from_proto(wire(plan_codec.verify_plan_to_proto(plan))) == plan


@settings(max_examples=50)
@given(VERIFY_RESULTS)
def test_verify_results_survive_the_wire(result):
    message = wire(answer_codec.verify_result_to_proto(result))
    assert answer_codec.verify_answer_from_proto(message) == result


@settings(max_examples=50)
@given(DRAFT_RESULTS)
def test_draft_results_survive_the_wire(result):
    message = wire(answer_codec.draft_result_to_proto(result))
    assert answer_codec.draft_answer_from_proto(message) == result


@settings(max_examples=20)
@given(st.builds(StepBegun, step_id=U64, batch=BATCH))
def test_steps_that_began_survive_the_wire(begun):
    message = wire(answer_codec.step_begun_to_proto(begun))
    assert answer_codec.verify_answer_from_proto(message) == begun


@settings(max_examples=20)
@given(st.builds(LinkLost, epoch=U64, reason=TEXT))
def test_a_lost_link_is_told_by_either_worker(lost):
    message = wire(answer_codec.link_lost_to_verifier_answer(lost))
    assert answer_codec.verify_answer_from_proto(message) == lost
    answer = wire(answer_codec.link_lost_to_drafter_answer(lost))
    assert answer_codec.draft_answer_from_proto(answer) == lost


@settings(max_examples=20)
@given(
    st.builds(
        ModelInfo,
        name=TEXT,
        vocab_size=U32,
        max_model_len=U32,
        tokenizer_fingerprint=TEXT,
        dtype=TEXT,
        eos_token_ids=IDS,
        block_size=U32,
        num_blocks=U32,
        drafter_kind=TEXT,
        quantisation=TEXT,
        device=TEXT,
    )
)
def test_model_infos_survive_the_wire(info):
    assert plan_codec.model_info_from_proto(wire(plan_codec.model_info_to_proto(info))) == info


@settings(max_examples=20)
@given(
    st.builds(
        WorkerIdentity,
        instance_id=TEXT,
        protocol_version=U32,
        started_unix_ns=U64,
        pid=U32,
        version=TEXT,
    )
)
def test_identities_survive_the_wire(identity):
    message = wire(plan_codec.identity_to_proto(identity))
    assert plan_codec.identity_from_proto(message) == identity


def test_params_that_nobody_set_are_off():
    assert plan_codec.params_from_proto(types_pb2.RowParams()) == RowParams()


@pytest.mark.parametrize("name", ["top_p", "repetition_penalty"])
def test_a_zero_that_somebody_set_is_a_zero(name):
    message = wire(types_pb2.RowParams(**{name: 0.0}))
    assert getattr(plan_codec.params_from_proto(message), name) == 0.0


@pytest.mark.parametrize("logprobs", [None, 0, 5])
def test_no_logprobs_and_none_but_the_chosen_one_are_told_apart(logprobs):
    params = RowParams(logprobs=logprobs)
    assert plan_codec.params_from_proto(plan_codec.params_to_proto(params)).logprobs == logprobs


@pytest.mark.parametrize("rate", [None, 0.0, 0.5])
def test_no_synthetic_acceptance_and_zero_are_told_apart(rate):
    debug = DebugOptions(synthetic_acceptance=rate)
    row = OpenRow(RowId(1), (1,), (), RowParams(), debug)
    message = wire(plan_codec.draft_plan_to_proto(DraftPlan(1, 0, 1, opens=(row,))))
    assert plan_codec.draft_plan_from_proto(message).opens[0].debug == debug


def test_the_verifier_never_hears_what_is_for_drafters_only():
    row = OpenRow(RowId(1), (1,), (2,), RowParams(), DebugOptions((7, 8), 0.5), "a secret")
    message = wire(plan_codec.verify_plan_to_proto(VerifyPlan(1, 0, 0, opens=(row,))))
    (opened,) = plan_codec.verify_plan_from_proto(message).opens
    assert (opened.debug, opened.cache_salt) == (None, "")
    drafting = wire(plan_codec.draft_plan_to_proto(DraftPlan(1, 0, 1, opens=(row,))))
    assert plan_codec.draft_plan_from_proto(drafting).opens == (row,)


def test_a_plan_with_a_salt_over_128_bytes_is_refused():
    def told(salt):
        row = OpenRow(RowId(1), (1,), (), RowParams(), cache_salt=salt)
        return plan_codec.draft_plan_to_proto(DraftPlan(1, 0, 1, opens=(row,)))

    assert plan_codec.draft_plan_from_proto(told("\u00e9" * 64)).opens[0].cache_salt
    with pytest.raises(ProtocolError, match=r"cache_salt=130 bytes: want 0..128"):
        plan_codec.draft_plan_from_proto(told("\u00e9" * 65))


def test_an_offset_of_each_row_survives_the_wire():
    stop = Stop(0.5, NO_CURVES, (1.0, -2.0))
    rows = tuple(DraftRow(RowId(i), 1, (), 1) for i in (1, 2))
    plan = DraftPlan(1, 0, 1, rows, score=Score.MARGIN, stop=stop)
    assert plan_codec.draft_plan_from_proto(wire(plan_codec.draft_plan_to_proto(plan))) == plan
    fed = tuple(VerifyRow(RowId(i), 1, (), 0, 1, 1, (), 0) for i in (1, 2))
    verify = VerifyPlan(1, 0, 1, fed, selection=Selection(3, 1, NO_CURVES, (1.0, -2.0)))
    message = wire(plan_codec.verify_plan_to_proto(verify))
    assert plan_codec.verify_plan_from_proto(message) == verify


def test_a_score_of_a_kind_that_is_not_known_is_refused():
    plan = drafter_pb2.DraftPlan(step_id=1, score=9)
    with pytest.raises(ProtocolError, match=r"score=9: want 0\.\.2"):
        plan_codec.draft_plan_from_proto(drafter_pb2.DrafterSessionRequest(plan=plan))


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (plan_codec.draft_plan_from_proto, drafter_pb2.DrafterSessionRequest()),
        (plan_codec.verify_plan_from_proto, verifier_pb2.VerifierSessionRequest()),
        (answer_codec.draft_answer_from_proto, drafter_pb2.DrafterSessionResponse()),
        (answer_codec.verify_answer_from_proto, verifier_pb2.VerifierSessionResponse()),
    ],
)
def test_a_message_of_a_kind_that_is_not_known_is_refused(decode, message):
    with pytest.raises(ProtocolError, match="session"):
        decode(message)


def test_a_row_error_that_is_not_known_is_refused():
    row = verifier_pb2.RowResult(row_id=7, error=99)
    result = verifier_pb2.VerifyResult(step_id=1, rows=[row])
    with pytest.raises(ProtocolError, match="row 7: unknown error 99"):
        answer_codec.verify_answer_from_proto(verifier_pb2.VerifierSessionResponse(result=result))


def test_every_field_of_every_message_is_carried():
    """A field added to the protocol and forgotten here would be lost silently."""
    pairs = {
        StepTiming: types_pb2.StepTiming,
        RowParams: types_pb2.RowParams,
        ModelInfo: types_pb2.ModelInfo,
        WorkerIdentity: types_pb2.WorkerIdentity,
        LinkLost: types_pb2.LinkLost,
        StepBegun: verifier_pb2.StepBegun,
        DraftRow: drafter_pb2.DraftRow,
        Stop: drafter_pb2.DraftStop,
        Selection: verifier_pb2.Selection,
        Curves: types_pb2.SurvivalCurves,
        DraftResult: drafter_pb2.DraftResult,
        DraftRowResult: drafter_pb2.DraftRowResult,
        VerifyRow: verifier_pb2.VerifyRow,
        VerifyResult: verifier_pb2.VerifyResult,
        RowResult: verifier_pb2.RowResult,
    }
    for value, message in pairs.items():
        names = value._fields if issubclass(value, tuple) else value.__slots__
        assert set(names) == set(message.DESCRIPTOR.fields_by_name), value.__name__
