from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import StateError
from minedraft.model import contenders, noise, processors, sampling
from minedraft.model.sampling import BROKEN, Position, SamplingRow, distributions, draw_with_q
from minedraft.model.sampling_row import Position as SamePosition
from minedraft.types import RowParams
from tests.c_kernels import draw_kernel
from tests.chi_square import assert_drawn_from
from tests.unit.minedraft.model.test_truncation import reference

PROMPT = (1, 2, 3)


@pytest.fixture(scope="module", params=["torch", "c"])
def draw(request):
    """Draw by each maker."""
    return partial(sampling.draw, kernel=draw_kernel() if request.param == "c" else None)


def positions_of(*params: RowParams, prompt=PROMPT, output=(), prefix=()) -> list[Position]:
    return [Position(SamplingRow(p, prompt, output), prefix) for p in params]


def plain_draw(logits: torch.Tensor, position: Position) -> int:
    """The definition: process, sort, perturb everything, take the largest."""
    params = position.row.params
    scores = logits.float().clone()
    processors.apply(scores[None], [position])
    if params.is_greedy:
        return int((scores == scores.max()).nonzero()[0])
    scores = scores / torch.tensor(params.temperature)
    scores = scores - scores.max()
    kept = torch.tensor(reference(scores, params, 0.0))
    key = noise.row_keys([noise.row_key(params.seed, position.index)], logits.device)
    return int(kept[(scores[kept].double() + noise.gumbel(key, kept)).argmax()])


params_strategy = st.builds(
    RowParams,
    temperature=st.sampled_from([0.0, 1e-6, 0.3, 0.8, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 1, 7, 5000]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.6, 1e-6]),
    min_p=st.sampled_from([0.0, 0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    min_tokens=st.sampled_from([0, 3]),
    stop_ids=st.just((0, 5)),
    allowed_token_ids=st.sampled_from([(), (3, 5, 9)]),
    seed=st.integers(0, (1 << 64) - 1),
)


@settings(max_examples=60, deadline=None)
@given(
    params=st.lists(params_strategy, min_size=1, max_size=6),
    vocab_size=st.sampled_from([10, 64, 200, 3000]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_draw_is_its_definition_row_by_row(draw, params, vocab_size, dtype, seed, data):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(params), vocab_size, generator=generator) * 3).to(dtype)
    tokens = st.lists(st.integers(0, 9), max_size=4)
    positions = [
        Position(SamplingRow(p, PROMPT, data.draw(tokens)), data.draw(tokens)) for p in params
    ]
    before = logits.clone()
    assert draw(logits, positions) == [
        plain_draw(row, p) for row, p in zip(logits, positions, strict=True)
    ]
    assert torch.equal(logits, before)


MIXED = [
    RowParams(temperature=0.0),
    RowParams(temperature=0.8, top_p=0.95, seed=1),
    RowParams(temperature=1.0, seed=2),
    RowParams(temperature=0.7, top_k=40, seed=3),
    RowParams(temperature=1.5, min_p=0.1, seed=4),
    RowParams(temperature=0.0, repetition_penalty=1.5),
    RowParams(temperature=1.0, top_p=0.999, seed=5),
    RowParams(temperature=0.9, top_k=100, top_p=0.9, frequency_penalty=0.4, seed=6),
    RowParams(temperature=0.9, logit_bias={7: 3.0}, seed=7),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [49152, 50257])
def test_draw_does_not_depend_on_batch_mates_at_full_vocabulary(draw, dtype, vocab_size):
    generator = torch.Generator().manual_seed(5)
    logits = (torch.randn(len(MIXED), vocab_size, generator=generator) * 2.5).to(dtype)
    positions = positions_of(*MIXED, output=(9, 9, 4))
    together = draw(logits, positions)
    for order in (list(range(8, -1, -1)), [2, 2, 2, 1], [6], [7, 0], [3, 8, 5, 1, 4]):
        found = draw(logits[order], [positions[i] for i in order])
        assert found == [together[i] for i in order]
    assert together == [plain_draw(row, p) for row, p in zip(logits, positions, strict=True)]


def test_draw_does_not_depend_on_the_block_size(draw, monkeypatch):
    logits = torch.randn(9, 3000, generator=torch.Generator().manual_seed(6)) * 2
    positions = positions_of(*MIXED)
    expected = draw(logits, positions)
    monkeypatch.setattr(contenders, "_CPU_BLOCK", 1)
    assert draw(logits, positions) == expected


def test_draw_does_not_depend_on_the_number_of_threads(draw):
    logits = torch.randn(9, 49152, generator=torch.Generator().manual_seed(7)) * 2
    positions = positions_of(*MIXED)
    expected = draw(logits, positions)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert draw(logits, positions) == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.gpu
def test_draw_works_on_cuda(draw):
    logits = torch.randn(9, 49152, generator=torch.Generator().manual_seed(7)) * 2
    positions = positions_of(*MIXED)
    assert draw(logits.cuda(), positions) == draw(logits, positions)


def test_greedy_takes_the_lowest_of_equal_logits_in_every_dtype(draw):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for vocab_size in (8, 128, 49152, 50257):
            logits = torch.zeros(3, vocab_size, dtype=dtype)
            logits[0, [7, 5]] = 2.0
            logits[1] = -1.0
            logits[2, -1] = 3.0
            expected = [5, 0, vocab_size - 1]
            assert draw(logits, positions_of(*[RowParams()] * 3)) == expected
            biased = RowParams(logit_bias={0: 0.0})
            assert draw(logits, positions_of(*[biased] * 3)) == expected


def test_near_zero_temperature_is_greedy_and_just_above_it_all_but(draw):
    logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(8))
    greedy = logits.argmax(-1).tolist()
    for temperature in (0.0, 1e-6, 9e-6, 2e-5):
        params = [RowParams(temperature=temperature, seed=s) for s in range(4)]
        assert draw(logits, positions_of(*params)) == greedy


def test_extreme_parameters_do_not_crash(draw):
    logits = torch.randn(5, 100, generator=torch.Generator().manual_seed(9))
    params = [
        RowParams(temperature=1.0, top_k=1 << 31),
        RowParams(temperature=1.0, top_p=0.0),
        RowParams(temperature=1.0, top_p=1e-38),
        RowParams(temperature=1e4),
        RowParams(temperature=1.0, min_p=1.0),
    ]
    tokens = draw(logits, positions_of(*params))
    best = logits.argmax(-1).tolist()
    assert [tokens[i] for i in (1, 2, 4)] == [best[i] for i in (1, 2, 4)]


def test_seed_position_and_nothing_else_pick_the_sample(draw):
    logits = torch.zeros(1, 50_000)
    at = lambda seed, output: draw(
        logits, positions_of(RowParams(temperature=2.0, seed=seed), output=output)
    )
    assert at(1, (4, 4)) == at(1, (5, 6))
    assert len({at(seed, ())[0] for seed in range(20)}) >= 18
    assert len({at(1, (4,) * n)[0] for n in range(20)}) >= 18


def test_token_the_model_rules_out_is_never_drawn(draw):
    logits = torch.full((200, 70), -math.inf)
    logits[:, [3, 69]] = torch.tensor([0.0, 1.0])
    for extra in ({}, {"top_p": 0.9999}, {"top_k": 60}, {"min_p": 1e-6}):
        params = [RowParams(temperature=3.0, seed=s, **extra) for s in range(200)]
        assert set(draw(logits, positions_of(*params))) == {3, 69}


NO_DISTRIBUTIONS = [
    (slice(None), -math.inf),
    (4, math.nan),
    (slice(None), math.nan),
    (6, math.inf),
    (7, math.nan),  # under a ban
    (9, math.inf),  # outside a list
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [80, 128])  # without and with chunks
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"top_p": 0.9},
        {"top_k": 5},
        {"min_p": 0.1},
        {"presence_penalty": 0.5},
        {"bad_words": ((7,),)},
        {"allowed_token_ids": (1, 2, 3)},
    ],
    ids=str,
)
def test_logits_that_are_no_distribution_give_no_token(draw, extra, temperature, vocab_size, dtype):
    """Whatever parameters hide of them; and the sound rows beside them draw what they drew."""
    params = RowParams(temperature=temperature, seed=3, **extra)
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(len(NO_DISTRIBUTIONS) + 2, vocab_size, generator=generator).to(dtype)
    alone = draw(logits, positions_of(*[params] * len(logits)))
    q_alone = draw_with_q(logits, positions_of(*[params] * len(logits)), 8)
    for row, (place, value) in enumerate(NO_DISTRIBUTIONS, start=1):
        logits[row, place] = value
    positions = positions_of(*[params] * len(logits))
    assert draw(logits, positions) == [alone[0], *[BROKEN] * len(NO_DISTRIBUTIONS), alone[-1]]
    tokens, q = draw_with_q(logits, positions, 8)
    assert tokens == [q_alone[0][0], *[BROKEN] * len(NO_DISTRIBUTIONS), q_alone[0][-1]]
    assert (q[0], q[-1]) == (q_alone[1][0], q_alone[1][-1])
    if temperature:
        sizes = [len(ids) for ids, _ in distributions(logits, positions)]
        assert sizes[1:-1] == [0] * len(NO_DISTRIBUTIONS)
        assert min(sizes[0], sizes[-1]) > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_minus_infinity_that_parameters_make_is_no_fault_of_the_model(draw, temperature):
    logits = torch.full((1, 80), -math.inf)
    logits[0, 5] = 1.0  # the model rules out all but 5, and the parameters rule out 5
    for extra in ({"bad_words": ((5,),)}, {"allowed_token_ids": (7,)}):
        (token,) = draw(logits, positions_of(RowParams(temperature=temperature, **extra)))
        assert 0 <= token < 80


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 1.3, "top_k": 5},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.0, "min_p": 0.2},
        {"temperature": 1.0, "top_k": 6, "top_p": 0.7},
    ],
)
def test_draws_have_the_processed_distribution(draw, params):
    logits = torch.tensor([[1.0, 0.2, -0.5, 2.0, 0.9, -1.5, 1.4, 0.0]])
    n = 8_000
    p = [RowParams(seed=s, **params) for s in range(n)]
    ids, expected = distributions(logits, positions_of(p[0]))[0]
    probabilities = torch.zeros(8, dtype=torch.float64).index_add_(0, ids, expected)
    tokens = draw(logits.expand(n, -1), positions_of(*p))
    assert_drawn_from(
        torch.bincount(torch.tensor(tokens), minlength=8).tolist(), probabilities.tolist()
    )
    along = positions_of(*[p[0]] * n)
    for i, position in enumerate(along):
        position.draft_prefix = range(i)  # one seed, many positions
    tokens = draw(logits.expand(n, -1), along)
    assert_drawn_from(
        torch.bincount(torch.tensor(tokens), minlength=8).tolist(), probabilities.tolist()
    )


def test_distribution_is_softmax_of_what_truncation_keeps():
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(11))
    params = [
        RowParams(temperature=0.7),
        RowParams(temperature=0.7, top_k=9),
        RowParams(temperature=2.0, top_p=0.5),
    ]
    for row, p, (ids, found) in zip(
        logits, params, distributions(logits, positions_of(*params)), strict=True
    ):
        scores = row / p.temperature
        kept = reference(scores - scores.max(), p, 0.0)
        expected = torch.zeros(300, dtype=torch.float64)
        expected[kept] = torch.softmax(scores[kept].double(), -1)
        dense = torch.zeros(300, dtype=torch.float64).index_add_(0, ids, found)
        torch.testing.assert_close(dense, expected, rtol=1e-5, atol=1e-9)


def test_q_is_the_truncated_processed_distribution_and_the_draft_is_in_it():
    logits = torch.randn(4, 500, generator=torch.Generator().manual_seed(12)).bfloat16() * 2
    params = [
        RowParams(temperature=0.8, seed=1),
        RowParams(temperature=0.8, top_k=3, seed=2),
        RowParams(temperature=0.0),
        RowParams(temperature=0.8, top_p=0.3, logit_bias={4: 50.0}, seed=3),
    ]
    tokens, q = draw_with_q(logits, positions_of(*params), 16)
    assert [len(ids) for ids, _ in q] == [16, 3, 1, 1]
    assert q[2] == ((int(logits[2].argmax()),), (1.0,))
    for token, (ids, probabilities) in zip(tokens, q, strict=True):
        assert token in ids
        assert math.fsum(probabilities) == pytest.approx(1.0, abs=1e-6)
        assert all(x > 0 for x in probabilities)
        assert all(torch.tensor(x).item() == x for x in probabilities)  # float32 as sent
    ids, probabilities = q[0]
    best = logits[0].float().sort(descending=True, stable=True)
    assert list(ids) == best.indices[:16].tolist()
    expected = torch.softmax(best.values[:16] / 0.8, -1)
    torch.testing.assert_close(torch.tensor(probabilities), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("extra", [{}, {"top_p": 0.95}])
def test_draws_over_several_groups_of_noise_have_the_distribution(draw, extra):
    generator = torch.Generator().manual_seed(4)
    logits = torch.cat([torch.randn(1, 150, generator=generator), torch.full((1, 50), 1.5)], 1)
    n = 20_000
    params = [RowParams(temperature=1.0, seed=s, **extra) for s in range(n)]
    ids, expected = distributions(logits, positions_of(params[0]))[0]
    probabilities = torch.zeros(200, dtype=torch.float64).index_add_(0, ids, expected)
    tokens = torch.tensor(draw(logits.expand(n, -1), positions_of(*params)))
    drawable = probabilities > 0
    counts = torch.bincount(tokens, minlength=200)
    assert counts[~drawable].sum() == 0
    assert_drawn_from(counts[drawable].tolist(), probabilities[drawable].tolist())


def test_drafts_are_drawn_from_q_itself():
    logits = torch.tensor([[1.0, 0.2, -0.5, 2.0, 0.9, -1.5, 1.4, 0.0]])
    n = 8_000
    params = [RowParams(temperature=1.0, seed=s) for s in range(n)]
    tokens, q = draw_with_q(logits.expand(n, -1), positions_of(*params), 4)
    assert len(set(q)) == 1
    expected = torch.zeros(8).index_add_(0, torch.tensor(q[0][0]), torch.tensor(q[0][1]))
    assert_drawn_from(torch.bincount(torch.tensor(tokens), minlength=8).tolist(), expected.tolist())


def test_shape_that_does_not_fit_is_a_bug_here(draw):
    with pytest.raises(StateError, match=r"\(2, 8\) for 1 positions"):
        draw(torch.zeros(2, 8), positions_of(RowParams()))


def test_position_is_the_same_class_under_both_names():
    assert Position is SamePosition
