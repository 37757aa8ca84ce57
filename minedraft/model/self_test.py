"""Proves at load time that the paged, packed path computes the model's own logits.

Refuses a model whose logits differ: prefill in chunks, a verify step of several tokens and a
rollback, in one mixed batch, against the model's own eager attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from minedraft.errors import ModelError
from minedraft.model.batch import RowInput
from minedraft.model.blocks.own_forward import own_attention, widened

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedModel

    from minedraft.model.runner import ModelRunner

_TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.08}
"""Largest relative error (Frobenius, of logits centred per row). Measured on SmolLM2-135M by
breaking the path on purpose, fp32 / bf16: scaling 1 % off 0.011 / 0.033; a needless soft cap of
50 0.010 / 0.034; scaling 10 % off 0.10 / 0.10; one layer's output lost 0.13 / 0.13; a wrong window
0.7 / 0.7; nothing broken 3e-6 / 0 (bit-equal on that AMD EPYC; other kernels will round otherwise,
which the bf16 limit leaves room for). So fp32 sees all of these and bf16 alone does not: the loader
proves the path in fp32 first where the model is small enough."""
_ROUTED_TOLERANCE = 0.3
"""In bfloat16, of models that route tokens to experts: rounding sends a token that is near two
experts to the other one. A tiny qwen3_moe of 4 experts: 0.135 by kernels that are right, 0.02 by
those that happen to round as its own forward does. Blocks are proven in fp32 at every size."""
_WORK = 1.5e10
"""Most parameters x tokens of the test. 40 tokens of SmolLM2-135M (5e9) took 0.45 s of a core."""
_FEWEST_TOKENS = 24
_MOST_TOKENS = 2048
_VERIFY = 5
"""Tokens of the verify step."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The model's own logits for a random sequence."""

    token_ids: list[int]
    logits: Tensor
    """[min(5, T - 1), V] float32, of the last tokens."""
    is_routed: bool = False
    """Whether the model routes tokens to experts."""


def reference(
    model: PreTrainedModel, dtype: torch.dtype, *, window: int | None, longest: int
) -> Reference:
    """Run the model's own eager attention over random tokens.

    Args:
        model: As transformers made it; weights narrower than `dtype` are widened as they are used.
        dtype: Of the activations.
        window: Shortest sliding window of its layers; the sequence is longer where affordable.
        longest: Most tokens the context allows.
    """
    tokens = _length(model, window, longest)
    generator = torch.Generator().manual_seed(20260)
    vocab = model.get_input_embeddings().num_embeddings
    ids = torch.randint(0, vocab, (1, tokens), generator=generator)
    device = next(model.parameters()).device
    kept = min(_VERIFY, tokens - 1)
    with torch.inference_mode(), own_attention(model), widened(model, dtype):
        logits = model(input_ids=ids.to(device), use_cache=False, logits_to_keep=kept).logits
    config = model.config.get_text_config(decoder=True)
    fields = ("num_experts", "num_local_experts", "n_routed_experts")
    is_routed = any(getattr(config, field, None) for field in fields)
    return Reference(ids[0].tolist(), logits[0].float().cpu(), is_routed)


def compare(path: Path, runner: ModelRunner, wanted: Reference) -> float:
    """Run the same tokens through the paged path.

    Args:
        path: Of the model, for messages.
        runner: With a pool of at least ``blocks_needed(wanted, block_size)`` blocks.
        wanted: From `reference`.

    Returns:
        The relative error.

    Raises:
        ModelError: The error is above the tolerance of the dtype, or not a number.
    """
    got = _paged_logits(runner, wanted.token_ids)
    error = relative_error(got, wanted.logits.repeat(2, 1))
    dtype = torch.float32 if runner.info.dtype == "float32" else torch.bfloat16
    tolerance = _TOLERANCE[dtype]
    if wanted.is_routed and dtype == torch.bfloat16:
        tolerance = _ROUTED_TOLERANCE
    if not error <= tolerance:
        raise ModelError(
            f"model {path}: paged attention differs from the model's own: relative error "
            f"{error:.3g} of the logits is above {tolerance:g} ({runner.info.dtype})"
        )
    return error


def blocks_needed(wanted: Reference, block_size: int) -> int:
    """Return the number of blocks that `compare` uses: the sequence twice."""
    return 2 * -(-len(wanted.token_ids) // block_size)


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """Frobenius norm of the difference over that of the wanted logits, both centred per row."""
    got, wanted = got.float().cpu(), wanted.float().cpu()
    got, wanted = got - got.mean(-1, keepdim=True), wanted - wanted.mean(-1, keepdim=True)
    return float((got - wanted).norm() / wanted.norm().clamp_min(1e-12))


def _length(model: PreTrainedModel, window: int | None, longest: int) -> int:
    parameters = sum(p.numel() for p in model.parameters())
    affordable = max(_FEWEST_TOKENS, min(int(_WORK / max(parameters, 1)), _MOST_TOKENS))
    wanted = 40 if window is None else window + 24
    return max(2, min(max(wanted, _FEWEST_TOKENS), affordable, longest))


def _paged_logits(runner: ModelRunner, token_ids: list[int]) -> Tensor:
    """[2 * verify, V]: logits of the last tokens, of two rows that took different ways there."""
    size = len(token_ids)
    verify = min(_VERIFY, size - 1)
    base = size - verify
    cut = base // 2
    per_row = -(-size // runner.block_size)
    # Neighbouring blocks alternate between the two rows, the second row's in falling order.
    first = list(range(0, 2 * per_row, 2))
    second = list(range(2 * per_row - 1, 0, -2))
    wrong = [(t + 1) % runner.info.vocab_size for t in token_ids[base:]]

    def row(blocks: list[int], begin: int, end: int, logits: int) -> RowInput:
        return RowInput(token_ids[begin:end], begin, blocks, logits)

    if cut:
        runner.forward([row(first, 0, cut, 0)])
    # A second prefill chunk beside a whole prefill, then a wrong draft that is rolled back.
    runner.forward([row(first, cut, base, 0), row(second, 0, base, 1)])
    runner.forward([RowInput(wrong, base, first, 1), row(second, base, base + 1, 1)])
    return runner.forward([row(first, base, size, verify), row(second, base, size, verify)])
