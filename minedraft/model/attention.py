"""Paged, packed attention behind transformers' AttentionInterface.

Refuses every option it does not honour: an unknown keyword, a mask made by the model, attention
that is not causal. Honours sliding windows (per layer), soft-capping, any scaling, grouped queries.
The arithmetic is that of `minedraft.model.kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from transformers import AttentionInterface

from minedraft.errors import ModelError
from minedraft.model.kernels.interface import Rope

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minedraft.model.kernels.interface import Kernels
    from minedraft.model.kv_pool import KVPool
    from minedraft.model.step_meta import StepMeta

ATTENTION_NAME = "minedraft_paged"
"""Name in AttentionInterface. It has no entry in AttentionMaskInterface, so transformers makes no
masks for it."""

_HARMLESS = frozenset(
    {
        "position_ids",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "cache_position",
        "return_dict",
        "logits_to_keep",
    }
)
"""Keywords that models pass on and that do not change attention."""


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Parameters of a layer's attention."""

    scaling: float
    sliding_window: int | None = None
    softcap: float | None = None


class AttentionStep(Protocol):
    """Attention of one forward pass, which the model's layers call."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Attend.

        Args:
            layer: `layer_idx` of the calling module.
            query: [Hq, T, Dk].
            key: [Hkv, T, Dk].
            value: [Hkv, T, Dv].
            options: Of this layer.

        Returns:
            [T, Hq, Dv].
        """


def paged_attention(  # noqa: PLR0917 the signature is transformers'
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,  # noqa: ANN401 whatever a model passes through
) -> tuple[Tensor, None]:
    """Attend for one layer; transformers calls this function.

    Args:
        module: The layer; has `layer_idx`.
        query: [1, Hq, T, D].
        key: [1, Hkv, T, D].
        value: [1, Hkv, T, Dv].
        attention_mask: Must be None.
        scaling: Of the scores; None: 1/sqrt(D).
        dropout: Ignored unless positive.
        **kwargs: `paged` (an `AttentionStep`), `sliding_window`, `softcap`; others are refused
            unless they are None or known to be harmless.

    Returns:
        [1, T, Hq, Dv] and no attention weights.

    Raises:
        ModelError: Names what this attention cannot honour.
    """
    step: AttentionStep | None = kwargs.pop("paged", None)
    window = kwargs.pop("sliding_window", None)
    softcap = kwargs.pop("softcap", None)
    causal = kwargs.pop("is_causal", None)
    name = type(module).__name__
    if step is None:
        raise ModelError(f"{name}: the model does not hand its keyword arguments to attention")
    if attention_mask is not None:
        raise ModelError(f"{name}: attention_mask {tuple(attention_mask.shape)} made by the model")
    if causal is False or (causal is None and getattr(module, "is_causal", True) is False):
        raise ModelError(f"{name}: is_causal=False, attention that looks ahead cannot be served")
    if dropout > 0:
        raise ModelError(f"{name}: dropout={dropout} in attention")
    for option, given in kwargs.items():
        if given is not None and given is not False and option not in _HARMLESS:
            raise ModelError(f"{name}: attention option {option!r} is not supported")
    options = AttentionOptions(
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        sliding_window=None if window is None else int(window),
        softcap=None if softcap is None else float(softcap),
    )
    output = step.attend(cast("int", module.layer_idx), query[0], key[0], value[0], options)
    return output[None], None


AttentionInterface.register(ATTENTION_NAME, paged_attention)


class PagedStep:
    """One forward pass over the pool.

    Args:
        meta: The plan of the step.
        pool: Where keys and values live.
        kernels: The arithmetic.
    """

    def __init__(self, meta: StepMeta, pool: KVPool, kernels: Kernels) -> None:
        self.meta = meta
        self.pool = pool
        self._kernels = kernels
        self.last: tuple[Tensor, ...] = ()
        """What the last layer made of each token before it attended: tensors [T, ...] that hold its
        keys and values. Empty before that."""
        self._ropes: dict[int, tuple[Tensor, Rope]] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        """Store this layer's keys and values, then attend (see AttentionStep)."""
        keys, values = key.transpose(0, 1), value.transpose(0, 1)
        self._kernels.write(keys, values, self.pool, layer, self.meta)
        self.saw(layer, keys, values)
        output = self._kernels.attend(query.transpose(0, 1), self.pool, layer, self.meta, options)
        return output.view(query.shape[1], query.shape[0], -1)

    def rope(self, embeddings: tuple[Tensor, Tensor]) -> Rope:
        """Return the rotations of this step's tokens, as kernels take them.

        Args:
            embeddings: cos and sin of the model's rotary module, [1, T, R], in halves alike.
        """
        cos, sin = embeddings
        found = self._ropes.get(id(cos))
        if found is None:
            half = cos.shape[-1] // 2
            made = Rope(*(x[0, :, :half].float().contiguous() for x in (cos, sin)))
            found = self._ropes[id(cos)] = (cos, made)  # holds cos, so that its id stays its own
        return found[1]

    def saw(self, layer: int, *tensors: Tensor) -> None:
        """Keep what a layer wrote, if it is the last one, for `minedraft.model.soundness`."""
        if layer == self.pool.num_layers - 1:
            self.last = tensors
