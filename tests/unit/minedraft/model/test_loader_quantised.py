"""A quantised model on the kernels computes what the dequantised one does, and stays packed."""

from __future__ import annotations

import weakref

import pytest
import torch

from minedraft.model.batch import RowInput
from minedraft.model.blocks.block import Block
from minedraft.model.kernels import select
from minedraft.model.loader import load_runner
from minedraft.model.quantised.grouped import GroupedWeight
from minedraft.model.quantised.linear import QuantisedLinear
from tests.gguf_models import to_gguf
from tests.quantised_models import FORMS, dequantise, quantise
from tests.rank_threads import rank_threads as rank_threads  # noqa: PLC0414 a fixture
from tests.tiny_families import save_family
from tests.tiny_models import make_tiny_llama

IDS = list(range(3, 60))
HAS_C = select("auto", torch.float32, 1).name.startswith("c/")


def pair(directory, form):
    """A model in this format, and the same one dequantised."""
    wide = {"hidden": 256, "layers": 1} if form.startswith("gguf") else {}
    path, plain = (make_tiny_llama(directory / name, **wide) for name in ("quantised", "plain"))
    if form == "gguf_mixed":
        meant = to_gguf(path, "Q4_K", v_proj="Q5_0", o_proj="Q8_0")
        meant |= {n: w.astype("float32") for n, w in meant.items()}
        for name in [name for name in meant if name.endswith("v_proj.weight")]:
            meant[name] = torch.from_numpy(meant[name]).bfloat16().double().numpy()
    elif form.startswith("gguf"):
        meant = to_gguf(path, form.removeprefix("gguf_").upper())
    else:
        meant = quantise(path, form)
    return path, dequantise(plain, meant, directory / "dense")


def logits(path, **options):
    runner = load_runner(path, num_blocks=8, **options)
    return runner.forward([RowInput(IDS, 0, [3, 2, 5, 1], len(IDS))])


@pytest.mark.skipif(not HAS_C, reason="no C kernels for this CPU")
@pytest.mark.parametrize("form", [*FORMS, "gguf_q8_0", "gguf_q4_k", "gguf_mixed"])
def test_packed_weights_give_the_bits_of_the_dequantised_model(tmp_path, form):
    quantised, dense = pair(tmp_path, form)
    assert torch.equal(logits(quantised, kernels="c"), logits(dense, kernels="c"))


@pytest.mark.parametrize("form", ["gptq", "fp8", "gguf_mixed"])
def test_torch_computes_the_same_but_for_the_order_of_sums(tmp_path, form):
    quantised, dense = pair(tmp_path, form)
    ours, theirs = (logits(path, kernels="torch") for path in (quantised, dense))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", ["gptq", "ct_int8", "fp8"])
@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_bf16_is_near_fp32(tmp_path, form, kernels):
    quantised, _ = pair(tmp_path, form)
    want = logits(quantised)
    got = logits(quantised, kernels=kernels, dtype="bfloat16").float()
    assert (got - want).norm() / want.norm() < 0.06


@pytest.mark.parametrize("form", ["gptq", "gguf_mixed"])
def test_no_two_layers_are_held_dequantised_at_once(tmp_path, monkeypatch, form):
    quantised, _ = pair(tmp_path, form)
    real = GroupedWeight.dequantised
    made = []

    def watched(self, *args):
        assert not [one for one in made if one() is not None]
        weight = real(self, *args)
        made.append(weakref.ref(weight))
        return weight

    monkeypatch.setattr(GroupedWeight, "dequantised", watched)
    runner = load_runner(quantised, num_blocks=1)
    assert made, "the self-test compares with them"
    assert not any(isinstance(module, QuantisedLinear) for module in runner._model.modules())


@pytest.mark.parametrize("form", ["gptq", "gguf_mixed"])
def test_quantised_layers_run_as_blocks(tmp_path, form):
    quantised, _ = pair(tmp_path, form)
    layers = load_runner(quantised, num_blocks=1)._model.model.layers
    assert all(isinstance(layer, Block) for layer in layers)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "phi3", "gemma2_softcap"])
def test_gguf_files_of_other_families_are_served(tmp_path, family):
    quantised, plain = (save_family(family, tmp_path / name) for name in ("quantised", "plain"))
    meant = to_gguf(quantised, "Q8_0", architecture=family.partition("_")[0])
    dense = dequantise(plain, meant, tmp_path / "dense")
    ours, theirs = (logits(path, kernels="torch") for path in (quantised, dense))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("family", ["qwen2", "qwen3_moe", "phi3", "gemma3_window"])
@pytest.mark.parametrize("form", ["ct_int4", "fp8"])
def test_safetensors_of_other_families_are_served(tmp_path, family, form):
    quantised = save_family(family, tmp_path / "quantised")
    dense = dequantise(quantised, quantise(quantised, form), tmp_path / "dense")
    ours, theirs = (logits(path, kernels="torch") for path in (quantised, dense))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", ["gptq", "fp8"])
def test_ranks_share_a_quantised_model(tmp_path, rank_threads, form):
    quantised, _ = pair(tmp_path, form)
    wanted = logits(quantised, kernels="torch")
    first, _ = rank_threads.run(2, lambda group: logits(quantised, kernels="torch", ranks=group))
    torch.testing.assert_close(first, wanted, rtol=1e-4, atol=1e-3)
