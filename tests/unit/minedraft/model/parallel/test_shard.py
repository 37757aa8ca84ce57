"""N ranks compute what one does: every family, chunked prefill, verify, rollback; fp32."""

from __future__ import annotations

import random
import threading

import pytest
import torch
from structlog.testing import capture_logs

from minedraft.errors import KernelsError, ModelError
from minedraft.model import loader
from minedraft.model.batch import RowInput
from minedraft.model.blocks.stored_linear import StoredLinear
from minedraft.model.kernels import torch_maker
from minedraft.model.loader import load_runner, refuse_ranks
from minedraft.model.self_test import Reference
from tests.rank_threads import rank_threads as rank_threads  # noqa: PLC0414 a fixture
from tests.tiny_families import FAMILIES, VOCAB_SIZE, save_family
from tests.tiny_models import make_tiny_llama

BLOCK = 4
A, B = list(range(0, 48, 2)), list(range(47, 0, -2))


def tokens(seed, count):
    rng = random.Random(seed)
    return [rng.randrange(VOCAB_SIZE) for _ in range(count)]


def steps():
    """Chunks, a chunk beside a long prefill, a wrong draft, the rollback over it, no logits."""
    a, b = tokens(1, 90), tokens(2, 90)
    return [
        [RowInput(a[:50], 0, A, 0)],
        [RowInput(a[50:70], 50, A, 3), RowInput(b[:60], 0, B, 60)],
        [RowInput([(t + 1) % VOCAB_SIZE for t in a[70:78]], 70, A, 8), RowInput(b[:3], 60, B, 1)],
        [RowInput(a[70:75], 70, A, 5), RowInput(b[60:62], 60, B, 2)],
        [RowInput(b[62:82], 62, B, 20), RowInput(a[75:76], 75, A, 1)],
    ]


def num_elements(model):
    """Elements of the weights, stored or not; a tied head counts as a weight of its own."""
    kept = [m.stored for m in model.modules() if isinstance(m, StoredLinear)]
    stored = sum(one.num_bytes // 4 for one in kept)
    return stored + sum({id(p): p.numel() for p in model.parameters()}.values())


def run(path, group=None, **options):
    """Logits of every step, and the elements that the runner's weights and cache hold."""
    runner = load_runner(path, num_blocks=48, block_size=BLOCK, ranks=group, **options)
    logits = [runner.forward(rows) for rows in steps()]
    return logits, num_elements(runner._model), runner._pool.num_bytes


def check(path, size, rank_threads, **options):
    wanted, *_ = run(path, **options)
    (first, *_), *_ = rank_threads.run(size, lambda group: run(path, group, **options))
    for got, want in zip(first, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4)
        assert torch.equal(got.argmax(-1), want.argmax(-1))


@pytest.mark.parametrize("name", FAMILIES)
def test_two_ranks_compute_what_one_does(name, tmp_path, rank_threads):
    check(save_family(name, tmp_path / name), 2, rank_threads)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "size"), [("qwen2", 2), ("gemma3_window", 2), ("qwen3", 4)])
def test_ranks_give_the_bits_of_one_with_kernels_that_sum_in_one_order(
    name, size, dtype, tmp_path, rank_threads
):
    path = save_family(name, tmp_path / name)
    options = {"dtype": dtype, "kernels": "c"}
    try:
        wanted, *_ = run(path, **options)
    except KernelsError as err:
        pytest.skip(str(err))
    (first, *_), *_ = rank_threads.run(size, lambda group: run(path, group, **options))
    assert all(torch.equal(*pair) for pair in zip(first, wanted, strict=True))


def test_partial_sums_are_added_where_kernels_promise_no_order(tmp_path, rank_threads):
    check(save_family("qwen2", tmp_path / "m"), 2, rank_threads, kernels="torch")


def save_biased(path):
    """A llama with biases everywhere, and no two weights alike."""
    from transformers import AutoModelForCausalLM

    config = FAMILIES["llama"]()
    config.attention_bias = config.mlp_bias = True
    model = AutoModelForCausalLM.from_config(config)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    model.save_pretrained(path)
    return path


def test_a_bias_is_added_once(tmp_path, rank_threads):
    check(save_biased(tmp_path / "m"), 2, rank_threads)


class Unasked:
    """A proof on a device that computes nothing."""

    def __init__(self, *_):
        pass

    def error(self, *_):
        return 0.0

    norm_error = error


class Alone:
    """Rank 1 of 2 on a device that holds nothing; what the other has is zero."""

    rank, size = 1, 2

    def all_reduce(self, x) -> None:
        """Of its own and zeros."""

    def all_gather(self, x):
        return [torch.zeros_like(x), x]

    def all_agree(self, *, ok):
        return ok


def test_a_rank_moves_its_share_to_its_device_and_never_more(tmp_path, monkeypatch):
    path, moved = save_biased(tmp_path / "m"), []
    move = torch.nn.Module.to

    def weighed(module, *args, **options):
        moved.append(num_elements(module))
        return move(module, *args, **options)

    monkeypatch.setattr(torch.nn.Module, "to", weighed)
    options = {"num_blocks": 8, "device": "meta", "self_test": False}
    whole = num_elements(load_runner(path, **options)._model)
    assert moved == [pytest.approx(whole, rel=0.01)]  # blocks keep norms of their own
    model = load_runner(path, **options, ranks=Alone())._model
    assert len(moved) == 2
    assert moved[1] < 0.51 * whole
    held = [t for m in model.modules() for t in vars(m).values() if isinstance(t, torch.Tensor)]
    assert all(t.is_meta for t in [*held, *model.parameters(), *model.buffers()])


@pytest.mark.parametrize(
    ("device", "limit", "is_compared"),
    [("meta", 1 << 30, True), ("meta", 1, False), ("cpu", 1, True)],
)
def test_ranks_are_compared_with_the_whole_model_on_the_cpu_up_to_a_size(
    device, limit, is_compared, tmp_path, monkeypatch
):
    path, seen = save_biased(tmp_path / "m"), []

    def reference(model, _dtype, *, window, longest):
        seen.append(({p.device.type for p in model.parameters()}, num_elements(model)))
        return Reference([1, 2, 3], torch.zeros(2, VOCAB_SIZE))

    monkeypatch.setattr(loader, "CPU_PROOF_BYTES", limit)
    monkeypatch.setattr(loader, "reference", reference)
    monkeypatch.setattr(loader, "compare", lambda *_: 0.0)
    monkeypatch.setattr("minedraft.model.blocks.replace.LayerProof", Unasked)
    with capture_logs() as logs:
        load_runner(path, num_blocks=8, device=device, ranks=Alone())
    whole = num_elements(load_runner(path, num_blocks=8, self_test=False)._model)
    assert seen == [({"cpu"}, pytest.approx(whole, rel=0.01))] * is_compared
    skipped = [line["path"] for line in logs if line["event"] == "model.self_test_skipped"]
    assert skipped == [str(path)] * (not is_compared)


def test_what_one_rank_refuses_all_refuse(tmp_path, rank_threads, monkeypatch):
    path = save_family("llama", tmp_path / "m")
    suspicious = set()
    compare = loader.compare

    def suspect(*args):
        error = compare(*args)
        if threading.get_ident() in suspicious:
            raise ModelError("not on my watch")
        return error

    def work(group):
        if group.rank == 1:
            suspicious.add(threading.get_ident())
        with pytest.raises(ModelError) as caught:
            load_runner(path, num_blocks=8, ranks=group)
        return str(caught.value)

    monkeypatch.setattr(loader, "compare", suspect)
    assert rank_threads.run(2, work) == ["another rank refuses the model", "not on my watch"]


def test_four_ranks_share_two_kv_heads_by_repeating_them(tmp_path, rank_threads):
    check(save_family("qwen3", tmp_path / "m"), 4, rank_threads)


def test_three_ranks_share_nine_heads_over_three(tmp_path, rank_threads):
    path = make_tiny_llama(
        tmp_path / "m", vocab_size=VOCAB_SIZE, hidden=144, heads=9, kv_heads=3, layers=2
    )
    check(path, 3, rank_threads)


def test_a_rank_holds_its_share_only(tmp_path, rank_threads):
    path = save_family("llama", tmp_path / "m")
    _, whole, whole_cache = run(path)
    shares = rank_threads.run(2, lambda group: run(path, group))
    for _, weights, cache in shares:
        assert weights < 0.51 * whole
        assert cache == whole_cache / 2
    assert sum(weights for _, weights, _ in shares) >= whole  # norms are on both


def test_a_tied_head_stays_tied_where_the_vocabulary_divides(tmp_path, rank_threads, monkeypatch):
    """As on a device where weights are stored as they are."""
    monkeypatch.setattr(torch_maker, "packing_works", lambda _dtype: False)
    monkeypatch.setattr("minedraft.model.blocks.replace._unmap", lambda _model: None)
    config = FAMILIES["gemma2_softcap"]()
    config.vocab_size = 132
    from transformers import AutoModelForCausalLM

    path = tmp_path / "m"
    AutoModelForCausalLM.from_config(config).save_pretrained(path)

    def work(group):
        model = load_runner(path, num_blocks=8, ranks=group, kernels="torch")._model
        embedding = model.model.embed_tokens.embedding.weight
        return model.lm_head.linear.stored._weight.data_ptr() == embedding.data_ptr()

    assert rank_threads.run(2, work) == [True, True]


def test_only_rank_0_gets_logits(tmp_path, rank_threads):
    path = save_family("llama", tmp_path / "m")
    (first, *_), (second, *_) = rank_threads.run(2, lambda group: run(path, group))
    assert first[1].shape == (63, VOCAB_SIZE)
    assert second[1].shape == (63, (VOCAB_SIZE + 1) // 2)  # its slice, which nobody reads


def test_what_ranks_cannot_share_is_refused_before_any_weight_is_read(tmp_path, monkeypatch):
    path = make_tiny_llama(tmp_path / "m", hidden=144, heads=9, kv_heads=3)

    def reads(*_args, **_kwargs):
        raise AssertionError("a weight was read")

    for module in ("safetensors", "transformers.modeling_utils"):
        monkeypatch.setattr(f"{module}.safe_open", reads)
    with pytest.raises(ModelError, match=r"tp_size=2 .*Hq=9, Hkv=3"):
        refuse_ranks(path, 2)
    refuse_ranks(path, 3)


@pytest.mark.parametrize("style", ["mla_kv_a_proj", "embedding_colwise"])
def test_a_plan_that_cannot_be_carried_out_names_the_style(
    style, tmp_path, rank_threads, monkeypatch
):
    from transformers import LlamaConfig

    plan = {**LlamaConfig.base_model_tp_plan, "layers.*.mlp.up_proj": style}
    monkeypatch.setattr(LlamaConfig, "base_model_tp_plan", plan)
    path = save_family("llama", tmp_path / "m")
    with pytest.raises(ModelError, match=style):
        rank_threads.run(2, lambda group: run(path, group))


def test_a_plan_that_computes_something_else_is_seen_by_the_self_test(
    tmp_path, rank_threads, monkeypatch
):
    from transformers import LlamaConfig

    plan = {**LlamaConfig.base_model_tp_plan, "layers.*.mlp": "moe_tp_experts"}
    monkeypatch.setattr(LlamaConfig, "base_model_tp_plan", plan)
    path = save_family("llama", tmp_path / "m")
    with pytest.raises(ModelError, match="differs from the model's own"):
        rank_threads.run(2, lambda group: run(path, group))
