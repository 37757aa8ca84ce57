"""Compares blocks with the layers they are to replace: random hidden states, float32.

Always in float32, whatever is served: bfloat16 rounding hides small mistakes. Weights are widened
one layer at a time, so a large model needs no more than one layer's room for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from minedraft.model.attention import PagedStep
from minedraft.model.batch import RowInput
from minedraft.model.blocks.own_forward import own_attention, widened
from minedraft.model.kv_pool import KVPool
from minedraft.model.step_meta import plan_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from minedraft.model.blocks.block import Block
    from minedraft.model.kernels.interface import Kernels
    from minedraft.model.kv_pool import LayerGeometry

TOLERANCE: Final = 1e-4
"""Largest relative error (Frobenius) of what a layer adds to the residual. Measured on eight tiny
families: 1.7e-7 to 3.3e-7 by torch, 3.8e-7 to 5.2e-7 in C; a scaling 1 % off is far above it."""
_TOKENS: Final = 12
_BLOCK_SIZE: Final = 16


class LayerProof:
    """Runs layers, and blocks in their place, over one row of random hidden states.

    Args:
        model: Its layers as transformers made them, or as they were cut for this rank.
        layers: Its decoder layers.
        geometry: Of every layer's keys and values, in the order of the pool.
        kernels: In float32, of the maker that will serve.
        max_model_len: Most positions of a sequence.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layers: Sequence[nn.Module],
        geometry: Sequence[LayerGeometry],
        kernels: Kernels,
        max_model_len: int,
    ) -> None:
        device = next(model.parameters()).device
        self._model = model
        self._kernels = kernels
        count = min(_TOKENS, max_model_len)
        self._meta = plan_step(
            [RowInput([0] * count, 0, [0], 0)], block_size=_BLOCK_SIZE, device=device
        )
        self._pool = KVPool(
            geometry,
            num_blocks=1,
            block_size=_BLOCK_SIZE,
            dtype=torch.float32,
            device=device,
            layout=kernels.key_layout,
        )
        generator = torch.Generator().manual_seed(20261)
        width = model.config.get_text_config().hidden_size
        # Cubed, so that some features stand out as they do in real hidden states.
        self._hidden = torch.randn(1, count, width, generator=generator).pow(3).to(device)
        self._given = self._arguments(layers)

    def error(self, index: int, layer: nn.Module, block: Block) -> float:
        """Return the relative error of a block, of what it adds to the residual.

        Args:
            index: Of the layer in the model.
            layer: The original.
            block: Over the float32 kernels.
        """
        given = self._given[index]
        with torch.inference_mode():
            with widened(layer, torch.float32):  # the block may hold the layer's own MLP
                with own_attention(self._model):
                    own = layer(self._hidden.clone(), **given)
                own = own[0] if isinstance(own, tuple) else own
                step = PagedStep(self._meta, self._pool, self._kernels)
                got = block(self._hidden.clone(), **given, paged=step)
            added = (own - self._hidden).norm().clamp_min(1e-12)
            return float((got - own).norm() / added)

    def norm_error(self, own: nn.Module, norm: nn.Module) -> float:
        """Return the relative error of a norm in place of the model's own."""
        with torch.inference_mode(), widened(own, torch.float32):
            wanted = own(self._hidden)
        with torch.inference_mode():
            return float((norm(self._hidden) - wanted).norm() / wanted.norm().clamp_min(1e-12))

    def _arguments(self, layers: Sequence[nn.Module]) -> list[dict[str, Any]]:
        """Record what the model hands to each layer, without running any."""
        given: list[dict[str, Any]] = []

        def record(hidden_states: Tensor, **arguments: Any) -> Tensor:  # noqa: ANN401 as the model has them
            given.append(arguments)
            return hidden_states

        decoder = self._model.get_decoder()
        try:
            for layer in layers:
                vars(layer)["forward"] = record
            with (
                torch.inference_mode(),
                own_attention(self._model),
                widened(decoder, torch.float32),
            ):
                decoder(
                    input_ids=self._meta.input_ids,
                    position_ids=self._meta.position_ids,
                    use_cache=False,
                )
        finally:
            for layer in layers:
                del vars(layer)["forward"]
        return given
