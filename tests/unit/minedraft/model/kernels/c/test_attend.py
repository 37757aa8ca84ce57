"""Attention in place is right, and a query's bits depend on its own row's past alone."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from minedraft.errors import StateError
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.attend import Attention
from minedraft.model.kernels.c.cpu import flags_here, runnable
from minedraft.model.kernels.c.library import load
from minedraft.model.kernels.c.pool import Pool
from minedraft.model.kernels.interface import Heads, KeyLayout, Rope
from minedraft.model.kernels.torch_maker import TorchKernels
from tests.paged_scene import Scene, Shape

ISAS = [isa for isa in runnable(flags_here()) if build.object_path(isa).exists()]
FLOATS = (torch.float32, torch.bfloat16)
MIX = [(200, 5), (0, 70), (15, 1), (16, 2), (17, 1), (31, 3), (255, 1), (256, 2), (511, 1), (0, 1)]
"""Contexts that end inside a block, at its edge and one after, and at the edges of a chunk."""
SHAPES = [
    Shape(),
    Shape(key_dim=128, group=1),
    Shape(key_dim=256, group=2, num_kv_heads=1, window=20),
    Shape(key_dim=80, group=4, softcap=30.0),
    Shape(key_dim=96, group=5, window=7, softcap=50.0),
    Shape(key_dim=64, group=8, num_kv_heads=1, window=300),
    Shape(key_dim=48, value_dim=24, group=6),
    Shape(key_dim=8, value_dim=72, group=7, block_size=4),
    Shape(key_dim=24, group=2, block_size=40, window=1),
    Shape(key_dim=16, group=1, block_size=272, num_kv_heads=3),
]

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.skipif(not ISAS, reason="no object for this CPU: no C compiler here"),
]


def attention(dtype=torch.float32, isa=None, threads=1):
    library = load(ISAS[0] if isa is None else isa)
    return Attention(library, Pool(library, threads) if threads > 1 else None, dtype)


def scene(shape=SHAPES[0], dtype=torch.float32, rows=MIX, **options):
    return Scene(shape, dtype, rows, layout=KeyLayout.COLUMNS, **options)


def assert_right(output, wanted, dtype):
    # In bf16 the output alone is rounded.
    tolerance = 1e-5 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(output.double(), wanted, rtol=tolerance, atol=tolerance)


def assert_same(got, wanted):
    assert got.keys() <= wanted.keys()
    for place, output in got.items():
        assert torch.equal(output, wanted[place]), place


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_token_attends_to_what_it_sees_and_unused_slots_may_be_nan(shape, dtype, isa):
    kernels, rows = attention(dtype, isa), scene(shape, dtype)
    rows.prefill(kernels)
    for place, output in rows.feed(kernels, rows.last()).items():
        assert_right(output, rows.wanted(*place), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_torch_maker_attends_alike(shape, dtype):
    rows = Scene(shape, dtype, MIX, layout=KeyLayout.ROWS, dirt=0.0)
    kernels = TorchKernels(dtype)
    rows.prefill(kernels)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for place, output in rows.feed(kernels, rows.last()).items():
        wanted = rows.wanted(*place)
        torch.testing.assert_close(output.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("group", range(1, 9))
def test_any_number_of_queries_and_heads(group):
    shape = Shape(key_dim=16, group=group, num_kv_heads=1, block_size=4)
    rows = scene(shape, rows=[((7 * n) % 50, n) for n in range(1, 71)])
    kernels = attention()
    rows.prefill(kernels)
    for place, output in rows.feed(kernels, rows.last()).items():
        assert_right(output, rows.wanted(*place), torch.float32)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_bit_depends_neither_on_chunks_nor_on_drafts_nor_on_mates(shape, dtype):
    kernels, length = attention(dtype), 300
    rows = [(length - 5, 5)] * 8
    whole = scene(shape, dtype, rows).feed(kernels, [(row, 0, length) for row in range(8)])

    chunked = scene(shape, dtype, rows)
    for at in range(0, length, 48):
        assert_same(chunked.feed(kernels, [(3, at, min(48, length - at))]), whole)
    verified = scene(shape, dtype, rows)
    verified.prefill(kernels)
    assert_same(verified.feed(kernels, verified.last()), whole)
    for at in range(length - 5, length):  # again, over what the verify step left
        assert_same(verified.feed(kernels, [(row, at, 1) for row in range(8)]), whole)
        assert_same(verified.feed(kernels, [(6, at, 1)]), whole)
    mates = scene(shape, dtype, rows)
    mates.prefill(kernels)
    pieces = [(5, length - 5, 2), (0, 0, 100), (1, 20, 1), (7, length - 5, 5)]
    assert_same(mates.feed(kernels, pieces), whole)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES[:5], ids=str)
def test_a_bit_depends_neither_on_threads_nor_on_the_instruction_set(shape, dtype):
    def outputs(isa, threads):
        rows, kernels = scene(shape, dtype), attention(dtype, isa, threads)
        rows.prefill(kernels)
        return rows.feed(kernels, rows.last())

    wanted = outputs(ISAS[-1], 1)
    for isa in ISAS:
        for threads in (1, 2, 3):
            assert_same(outputs(isa, threads), wanted)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_in_other_rows_and_in_later_tokens_enters_nothing(dtype, bad):
    kernels, rows = attention(dtype), scene(dtype=dtype)
    rows.prefill(kernels)
    wanted = rows.feed(kernels, rows.last())
    broken = scene(dtype=dtype)
    for tensors in (broken.keys, broken.values, broken.queries):
        tensors[0][203:] = bad  # the fourth of five tokens
        tensors[1][40:] = bad
        tensors[3][:] = bad
    broken.prefill(kernels)
    got = broken.feed(kernels, broken.last())
    spoiled = {(0, 203), (0, 204), (3, 16), (3, 17), *((1, at) for at in range(40, 70))}
    assert_same({place: x for place, x in got.items() if place not in spoiled}, wanted)
    assert all(got[place].isnan().all() for place in spoiled)


def test_queries_may_be_strided_and_the_output_given():
    kernels, rows = attention(), scene()
    rows.prefill(kernels)
    step, query, key, value = rows.step(rows.last())
    kernels.write(key, value, rows.pool, 1, step)
    wanted = kernels.attend(query, rows.pool, 1, step, rows.shape.options)
    heads_first = query.transpose(0, 1).contiguous().transpose(0, 1)
    features_first = query.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    out = torch.empty_like(wanted)
    for strided in (heads_first, features_first):
        out.fill_(math.nan)
        got = kernels.attend(strided, rows.pool, 1, step, rows.shape.options, out=out)
        assert got is out
        assert torch.equal(got, wanted)


def test_keys_and_values_may_have_any_strides():
    kernels, rows, strided = attention(), scene(), scene()
    step, _, key, value = rows.step(rows.last())
    kernels.write(key, value, rows.pool, 1, step)
    key, value = (x.permute(2, 1, 0).contiguous().permute(2, 1, 0) for x in (key, value))
    kernels.write(key, value, strided.pool, 1, step)
    for a, b in zip(rows.pool._stacks, strided.pool._stacks, strict=True):
        assert torch.equal(a[1].nan_to_num(7.0), b[1].nan_to_num(7.0))
        assert a[0].isnan().all(), "another layer"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("dim", "half"), [(64, 32), (80, 16), (16, 4), (256, 128), (24, 12)])
def test_rotation_has_the_bits_of_transformers(dtype, isa, dim, half):
    shape, kernels = Shape(key_dim=dim), attention(dtype, isa)
    rows, plain = scene(shape, dtype), scene(shape, dtype)
    step, query, key, value = rows.step(rows.last())
    T, heads = query.shape[0], Heads(6, 2, dim)
    qkv = torch.cat([query, key, value], dim=1).flatten(1)
    angles = torch.randn(T, half, generator=torch.Generator().manual_seed(1))
    rope = Rope(angles.cos(), angles.sin())
    cos, sin = (torch.cat([x, x], -1).to(dtype)[None] for x in (rope.cos, rope.sin))
    turned = [
        torch.cat([t[0].transpose(0, 1), x[..., 2 * half :]], -1)
        for t, x in zip(
            apply_rotary_pos_emb(
                query[None, ..., : 2 * half].transpose(1, 2),
                key[None, ..., : 2 * half].transpose(1, 2), cos, sin,
            ),
            (query, key), strict=True,
        )
    ]  # fmt: skip
    kernels.rope_write(qkv, rope, rows.pool, 1, step, heads=heads)
    assert torch.equal(qkv.view(T, -1, dim)[:, :6], turned[0])
    kernels.write(turned[1], value, plain.pool, 1, step)
    for a, b in zip(rows.pool._stacks, plain.pool._stacks, strict=True):
        assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def test_a_row_of_a_wider_tensor_is_rotated_in_place():
    kernels, rows, wide = attention(), scene(), scene()
    step, *parts = rows.step(rows.last())
    qkv = torch.cat(parts, dim=1).flatten(1)
    padded = torch.zeros(len(qkv), qkv.shape[1] + 5)
    padded[:, : qkv.shape[1]] = qkv
    rope = Rope(torch.rand(len(qkv), 32), torch.rand(len(qkv), 32))
    for given, into in ((qkv, rows), (padded[:, : qkv.shape[1]], wide)):
        kernels.rope_write(given, rope, into.pool, 1, step, heads=Heads(6, 2, 64))
    assert torch.equal(padded[:, : qkv.shape[1]], qkv)
    assert not padded[:, qkv.shape[1] :].any()
    for a, b in zip(rows.pool._stacks, wide.pool._stacks, strict=True):
        assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def test_what_would_be_read_beyond_is_refused():
    kernels, rows = attention(), scene()
    step, query, key, value = rows.step(rows.last())
    pool, options = rows.pool, rows.shape.options
    qkv, half = torch.cat([query, key, value], dim=1).flatten(1), torch.zeros(len(query), 32)
    heads = Heads(6, 2, 64)
    refused = {
        "query": [
            lambda: kernels.attend(query[1:], pool, 1, step, options),
            lambda: kernels.attend(query[:, :5], pool, 1, step, options),
            lambda: kernels.attend(query[..., :32], pool, 1, step, options),
            lambda: kernels.attend(query.bfloat16(), pool, 1, step, options),
        ],
        "output": [
            lambda: kernels.attend(query, pool, 1, step, options, out=query[1:]),
            lambda: kernels.attend(
                query, pool, 1, step, options, out=torch.empty(len(query), 800)[:, :384]
            ),
        ],
        "keys or values": [
            lambda: kernels.write(key[1:], value, pool, 1, step),
            lambda: kernels.write(key, value[:, :1], pool, 1, step),
            lambda: kernels.write(key.double(), value, pool, 1, step),
        ],
        "qkv": [
            lambda: kernels.rope_write(qkv[1:], Rope(half, half), pool, 1, step, heads=heads),
            lambda: kernels.rope_write(
                qkv, Rope(half, half), pool, 1, step, heads=Heads(4, 3, 64)
            ),
        ],
        "rotations": [
            lambda: kernels.rope_write(qkv, Rope(half, half[1:]), pool, 1, step, heads=heads),
            lambda: kernels.rope_write(qkv, Rope(half.half(), half), pool, 1, step, heads=heads),
        ],
        "bad argument": [
            lambda: kernels.rope_write(
                qkv, Rope(torch.zeros(len(query), 33), torch.zeros(len(query), 33)), pool, 1, step,
                heads=heads,
            ),
        ],
    }  # fmt: skip
    for said, calls in refused.items():
        for call in calls:
            with pytest.raises(StateError, match=said):
                call()
