"""Puts a loaded model on the kernels: known layers as blocks, the rest with stored linears.

A layer is replaced only by a block that computes what it computes (`proof`). One that differs, or
that no block knows, keeps its own forward. Weights are released layer by layer, so the model is
never held twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import structlog
import torch
from torch import nn

from minedraft.model.blocks.build import BlockBuilder, UnknownPartError
from minedraft.model.blocks.family import family_of
from minedraft.model.blocks.proof import TOLERANCE, LayerProof
from minedraft.model.blocks.stored_embedding import store_embeddings
from minedraft.model.blocks.stored_linear import StoredLinear, store_linears
from minedraft.model.blocks.stored_norm import StoredNorm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transformers import PreTrainedModel

    from minedraft.model.attention import AttentionOptions
    from minedraft.model.blocks.block import Block
    from minedraft.model.blocks.family import Family
    from minedraft.model.kernels.interface import Kernels, Stored
    from minedraft.model.kv_pool import LayerGeometry

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LayerCount:
    """What became of a model's layers."""

    in_blocks: int
    """Layers that run as blocks."""
    total: int

    def __str__(self) -> str:
        """Return it as `30 of 30 layers in blocks`."""
        return f"{self.in_blocks} of {self.total} layers in blocks"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The kernels that serve a model, and those that prove it."""

    served: Kernels
    proof: Kernels | None
    """In float32, of the same maker; `served` itself where that is float32; None: no proof."""


def put_on_kernels(
    model: PreTrainedModel,
    arithmetic: Arithmetic,
    layers: Sequence[tuple[LayerGeometry, AttentionOptions]],
    *,
    max_model_len: int,
    agree: Callable[[bool], bool],
) -> LayerCount:
    """Replace layers, linears, the final norm and embeddings of a model, in place.

    Args:
        model: Loaded, its weights as the checkpoint has them.
        arithmetic: The kernels.
        layers: What each layer asked of attention, in the order of the pool.
        max_model_len: Most positions of a sequence.
        agree: Whether all ranks say yes, given what this one says: they must choose alike, because
            layers exchange what they compute.

    Returns:
        How many layers run as blocks.
    """
    kernels = arithmetic.served
    found = _decoder_layers(model, len(layers))
    families = [family_of(layer) for layer in found]
    known = next((family for family in families if family is not None), None)
    proof = None
    if arithmetic.proof is not None and known is not None:
        geometry = [one for one, _ in layers]
        proof = LayerProof(model, list(found), geometry, arithmetic.proof, max_model_len)
    count = 0
    kept: dict[str, list[int]] = {}
    for index, (layer, family) in enumerate(zip(found, families, strict=True)):
        block, reason = None, "another rank keeps it"
        try:
            block = _proven(arithmetic, proof, family, layer, index, layers)
        except UnknownPartError as err:
            reason = str(err)
        if agree(block is not None) and block is not None:
            found[index] = block
            count += 1
        else:
            kept.setdefault(reason, []).append(index)
    for reason, indices in kept.items():
        log.warning("model.layers_kept", layers=indices, reason=reason)
    if known is not None:
        _store_norm(model, arithmetic, proof, known)
    shared = _tied_embedding(model)
    store_linears(model, kernels)
    store_embeddings(model, kernels.dtype, _with_rows_of_head(model, shared))
    _widen_rest(model, kernels.dtype)
    _unmap(model)
    return LayerCount(count, len(layers))


def _tied_embedding(model: PreTrainedModel) -> nn.Embedding | None:
    """Return the embedding whose weight is the head's, if there is one."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    is_tied = isinstance(embedding, nn.Embedding) and getattr(head, "weight", None) is (
        embedding.weight
    )
    return cast("nn.Embedding", embedding) if is_tied else None


def _with_rows_of_head(
    model: PreTrainedModel, shared: nn.Embedding | None
) -> tuple[nn.Embedding, Stored] | None:
    """Pair an embedding with the weight of its head, now that this is stored, if it has rows."""
    head = model.get_output_embeddings()
    if shared is None or not isinstance(head, StoredLinear) or not head.stored.has_rows:
        return None
    return shared, head.stored


def _proven(  # noqa: PLR0917 one caller
    arithmetic: Arithmetic,
    proof: LayerProof | None,
    family: Family | None,
    layer: nn.Module,
    index: int,
    layers: Sequence[tuple[LayerGeometry, AttentionOptions]],
) -> Block:
    """Build a layer's block for serving, after one in float32 computed what the layer computes."""
    if family is None:
        raise UnknownPartError(f"no block knows {type(layer).__name__}")
    place = cast("int", cast("nn.Module", layer.self_attn).layer_idx)
    kernels = arithmetic.served if arithmetic.proof is None else arithmetic.proof
    block = BlockBuilder(family, kernels).build(layer, place, *layers[place])
    if proof is not None:
        error = proof.error(index, layer, block)
        if not error <= TOLERANCE:
            raise UnknownPartError(f"relative error {error:.3g} is above {TOLERANCE:g}")
    if kernels is arithmetic.served:
        return block
    return BlockBuilder(family, arithmetic.served).build(layer, place, *layers[place])


def _decoder_layers(model: PreTrainedModel, num_layers: int) -> nn.ModuleList:
    """Return the list that the model walks; empty if it has none of the usual shape."""
    layers = getattr(model.get_decoder(), "layers", None)
    if isinstance(layers, nn.ModuleList) and len(layers) == num_layers:
        return layers
    return nn.ModuleList()


def _store_norm(
    model: PreTrainedModel, arithmetic: Arithmetic, proof: LayerProof | None, family: Family
) -> None:
    """Replace the norm behind the last layer, if it is one of the family's."""
    decoder = model.get_decoder()
    width = model.config.get_text_config().hidden_size
    try:
        norm = BlockBuilder(family, arithmetic.served).norm(decoder, "norm", width)
    except UnknownPartError as err:
        log.warning("model.norm_kept", reason=str(err))
        return
    if proof is not None and arithmetic.proof is not None:
        error = proof.norm_error(
            cast("nn.Module", decoder.norm), StoredNorm(arithmetic.proof, norm)
        )
        if not error <= TOLERANCE:
            log.warning("model.norm_kept", reason=f"relative error {error:.3g}")
            return
    decoder.norm = StoredNorm(arithmetic.served, norm)


def _widen_rest(model: nn.Module, dtype: torch.dtype) -> None:
    """Give what is left in another dtype, such as norms, that of the activations."""
    stored = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for parameter in model.parameters():
        if parameter.is_floating_point() and id(parameter) not in stored:
            parameter.data = parameter.data.to(dtype)


def _unmap(model: nn.Module) -> None:
    """Copy what is left of the files as transformers has mapped them.

    One tensor, such as the embedding, would keep a whole file in memory.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu":
            parameter.data = parameter.data.clone()
